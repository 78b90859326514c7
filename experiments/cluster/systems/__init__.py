"""Whole jobs on systems for many machines: a list of images in, a folder of vectors out.

Each module is a job in a process of its own, `python -m experiments.cluster.systems.NAME TASK`,
written and configured as the system's own documentation recommends. They take no part in an
embedding job of this suite; they are there to be compared with. Ray Data and Daft also run with
`wallclock.decode` in place of their own decoders, which tells engine and decoder apart.
`make setup-cluster` installs them.
"""

from dataclasses import dataclass
from importlib import util

from experiments.cluster.systems._task import SCALED
from harness import peers
from wallclock.errors import Unavailable

#: What installs them.
_FIX = "make setup-cluster"


@dataclass(frozen=True)
class System:
    """One job. `module`: in this package; `distribution`: what it needs; `label`: in figures."""

    module: str
    label: str
    distribution: str = ""
    #: Words after the task.
    words: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        """Whether it is this suite's."""
        return self.module == "ours"

    def installed(self) -> str:
        """What is installed, for the key of its cells: once it is there, it is measured."""
        return peers.installed([self.distribution]) if self.distribution else ""

    def check(self) -> None:
        """Raise Unavailable, with the fix, where it is not installed."""
        if self.distribution and util.find_spec(self.distribution) is None:
            raise Unavailable(f"{self.distribution} is not installed: {_FIX}")


#: In the order of tables.
SYSTEMS = {
    "ours": System("ours", "wallclock, one process"),
    "ours-ray": System("ours", "wallclock on Ray Data", "ray", ("ray",)),
    "ray-images": System("ray_images", "Ray Data, read_images", "ray"),
    "ray-download": System("ray_download", "Ray Data, download()", "ray"),
    "ray-scaled": System("ray_download", "Ray Data, our decode", "ray", (SCALED,)),
    "daft": System("daft_native", "Daft, native runner", "daft"),
    "daft-scaled": System("daft_native", "Daft, our decode", "daft", (SCALED,)),
}
