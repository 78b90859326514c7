"""Decoder `turbojpeg`: the system's or the environment's libturbojpeg, through PyTurboJPEG."""

from wallclock import native
from wallclock.errors import ImageError, Unavailable
from wallclock.stages.decode import Decode, Decoder, Scaling
from wallclock.stages.pixels import Pixels


def _make(scaling: Scaling | None, reuse: bool) -> Decode:
    library = native.find_libturbojpeg()
    if library is None:
        raise Unavailable(f"libturbojpeg is not installed: {native.INSTALL_HINT}")
    import turbojpeg

    class Strict(turbojpeg.TurboJPEG):  # type: ignore[misc]
        """PyTurboJPEG 1.8 only warns of damage; here that is an error."""

        def _TurboJPEG__report_error(self, handle: int) -> None:  # noqa: N802
            message = self._TurboJPEG__get_error_string(handle)
            raise ImageError("decode", f"libjpeg-turbo: {message}")

    decoder = Strict(library)

    def decode(data: bytes) -> Pixels:
        factor = None
        if scaling is not None:
            width, height, _, _ = decoder.decode_header(data)
            n = scaling.denominator(width, height)
            factor = (1, n) if n > 1 else None
        pixels: Pixels = decoder.decode(data, turbojpeg.TJPF_RGB, factor)
        return pixels

    return decode


_CODEC = "libturbojpeg"
DECODER = Decoder("turbojpeg", "libjpeg-turbo", ("PyTurboJPEG",), _make, scales=True, codec=_CODEC)
