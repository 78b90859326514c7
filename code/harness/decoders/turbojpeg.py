"""Decoder `turbojpeg`: the system's or the environment's libturbojpeg, through PyTurboJPEG."""

from harness import native
from wallclock.errors import ImageError, Unavailable
from wallclock.stages.decode import Decode, Decoder, PixelArray


def _make(reuse: bool) -> Decode:
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

    def decode(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> PixelArray:
        factor = (1, scale) if scale > 1 else None
        pixels: PixelArray = decoder.decode(data, turbojpeg.TJPF_RGB, factor)
        return pixels

    return decode


_CODEC = "libturbojpeg"
DECODER = Decoder(
    "turbojpeg", "libjpeg-turbo", ("PyTurboJPEG",), _make, scales=True, strict=True, codec=_CODEC
)
