"""`wallclock doctor`: what is installed, what runs here, and how to get what is missing."""

import io
import platform
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata, util

from wallclock import errors, machine, native
from wallclock.errors import Unavailable, UserError
from wallclock.outside import printable
from wallclock.stages import decode

#: Extra of the wheel → what it is for.
_EXTRAS = {
    "torch": "tensors, batches on a GPU",
    "embed": "wallclock embed and verify",
    "cpu": "faster networks on a CPU, by OpenVINO",
    "augment": "augmented batches, faster WebP",
    "s3": "images and results in a bucket",
    "queue": "wallclock serve",
    "trace": "wallclock trace",
    "ray": "one job on many machines",
}
#: A line of a distribution's requirements: a name, and the extra that needs it.
_REQUIREMENT = re.compile(r"([\w.-]+).*?;.*extra == ['\"](\w+)['\"]")
#: Less of /dev/shm is too little for the loader's processes. Docker gives 64 MB.
_SHARED_BYTES = 1 << 30
_WIDTH, _INDENT = 80, 15


@dataclass(frozen=True)
class Finding:
    """What was looked at and how it is; `cure` is empty where all is well.

    `stops`: whether nothing can be computed as asked before it is cured.
    """

    what: str
    state: str
    cure: str = ""
    stops: bool = False


def examine() -> Iterator[Finding]:
    """What the product needs, the most important first."""
    system = f"{platform.system()} {platform.machine()}, {machine.usable_cores()} cores"
    yield Finding("wallclock", f"{errors.VERSION}, Python {platform.python_version()}, {system}")
    if native.find():
        yield Finding("native module", f"compiled, {native.described()} kernels")
    else:
        compiler = "apt-get install gcc python3-dev, or conda install -c conda-forge c-compiler"
        state = f"{native.described()}; libjpeg-turbo and Pillow decode instead"
        yield Finding("native module", state, f"{compiler}; then install wallclock again")
    yield from _decoders()
    if util.find_spec("torch"):
        yield from _torch()
    yield from _extras()
    if (size := machine.shared_memory_bytes()) is not None and size < _SHARED_BYTES:
        cure = "docker run --shm-size=2g, or processes=1"
        yield Finding("shared memory", f"{size / 1e6:,.0f} MB in /dev/shm", cure)


def _decoders() -> Iterator[Finding]:
    """Those that decode a picture, each with its libjpeg-turbo."""
    from PIL import Image, features

    picture = io.BytesIO()
    Image.new("RGB", (16, 16)).save(picture, "JPEG")
    versions = {"pil": features.version("libjpeg_turbo")}
    if util.find_spec("simplejpeg") and (spec := util.find_spec("simplejpeg._jpeg")):
        versions["simplejpeg"] = machine.libjpeg_turbo_version(str(spec.origin))
    working = []
    for name in ("native", "simplejpeg", "pil") if native.find() else ("simplejpeg", "pil"):
        try:
            decode.make(name)(picture.getvalue())
        except (errors.ImageError, UserError) as error:
            cure = f"pip install --force-reinstall {' '.join(decode.DECODERS[name].libraries)}"
            yield Finding("decoder", f"{name} does not run: {error}", cure, stops=True)
        else:
            version = versions.get(name)
            working.append(f"{name} (libjpeg-turbo {version})" if version else name)
    yield Finding("decoders", ", ".join(working))


def _torch() -> Iterator[Finding]:
    """torch, and the GPUs that it can use."""
    import torch

    yield Finding("torch", torch.__version__)
    try:
        present = machine.gpus()
    except UserError as error:
        yield Finding("GPU", "unknown", str(error))
        return
    about = ["{name}, {memory_gib} GiB, driver {driver}".format(**gpu) for gpu in present]
    cure = ""
    with warnings.catch_warnings(action="ignore"):  # torch's, of an old driver
        try:
            machine.require_cuda()
        except Unavailable as error:
            cure = str(error) if present else ""
    yield Finding("GPU", ", ".join(about) or "none", cure, stops=bool(cure))


def _extras() -> Iterator[Finding]:
    """Which of the wheel's extras are installed; a line for each that is not."""
    lacking: dict[str, list[str]] = {extra: [] for extra in _EXTRAS}
    for line in metadata.requires(errors.DISTRIBUTION) or ():
        match = _REQUIREMENT.match(line)
        if match and match[2] in lacking:
            try:
                metadata.distribution(match[1])
            except metadata.PackageNotFoundError:
                lacking[match[2]].append(match[1])
    yield Finding("extras", ", ".join(name for name in _EXTRAS if not lacking[name]) or "none")
    for extra in filter(lacking.get, _EXTRAS):
        state = f"{', '.join(lacking[extra])}, for {_EXTRAS[extra]}"
        yield Finding("not installed", state, errors.install_hint(extra))


def render(findings: Sequence[Finding]) -> str:
    """Each finding on a line or two with its cure below; the last line counts the cures."""
    lines = []
    for finding in findings:
        texts = [finding.state, *([f"→ {finding.cure}"] if finding.cure else [])]
        width = _WIDTH - _INDENT
        wrapped = [textwrap.wrap(printable(t, 600), width, break_on_hyphens=False) for t in texts]
        first, *rest = [line for part in wrapped for line in part]
        lines += [finding.what.ljust(_INDENT) + first, *(" " * _INDENT + line for line in rest)]
    n = sum(bool(finding.cure) for finding in findings)
    return "\n".join([*lines, f"{n} to fix or to install (→)" if n else "all is well"])
