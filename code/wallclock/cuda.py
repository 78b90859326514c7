"""Whether torch can use a CUDA GPU here; if not, why, in one line."""

from wallclock.errors import Unavailable

#: Major version of the CUDA that torch is built for → the oldest driver that runs it:
#: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_OLDEST_DRIVER = {12: 525, 13: 580}
_OLDER_WHEELS = "`PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cu128 make setup LOCK=paper`"


def require(what: str = "device=cuda") -> None:
    """Raise `Unavailable` if torch sees no CUDA device, with the cause and the fix."""
    import torch

    if torch.cuda.is_available():
        return
    # Imported where it is needed: what it reads the machine with, a user's own loop has no need of.
    from wallclock import provenance

    wheel, gpus = f"torch {torch.__version__}", provenance.gpus()
    reason = f"{what} needs a CUDA GPU, and {wheel} sees no CUDA device"
    if gpus and torch.version.cuda is None:
        reason += f": it is built without CUDA, and {gpus[0]['name']} is here"
    elif gpus:
        cuda, driver = str(torch.version.cuda), gpus[0]["driver"]
        oldest = _OLDEST_DRIVER.get(int(cuda.partition(".")[0]), 0)
        if int(driver.partition(".")[0]) < oldest:
            reason += (
                f": it is built for CUDA {cuda}, which needs driver {oldest} or newer, and this is "
                f"driver {driver}. Update the driver, or type {_OLDER_WHEELS}"
            )
    raise Unavailable(reason)
