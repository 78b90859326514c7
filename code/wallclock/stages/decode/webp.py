"""Still WebP images by the libwebp in OpenCV, where that is installed; pixels are Pillow's.

Pillow decodes them as animations, and copies the result. (imagecodecs has libwebp too, and would be
one more library; OpenCV is the one that augmentation needs.)
"""

from functools import cache
from typing import Any

from wallclock.formats import webp_image_end
from wallclock.stages.pixels import PixelArray


@cache
def opencv() -> Any:
    """The library; None: it is not installed, cannot be loaded, or is older than 4.11."""
    try:
        import cv2
    except ImportError:
        return None
    return cv2 if hasattr(cv2, "IMREAD_COLOR_RGB") else None


def label() -> dict[str, str]:
    """What has decoded still WebP images in this process; empty: none was asked for."""
    if not opencv.cache_info().currsize:
        return {}
    cv2 = opencv()
    return {"webp": f"opencv {cv2.__version__}" if cv2 else "pil"}


def decode(data: bytes) -> "PixelArray | None":
    """Uint8 (h, w, 3); None: it is left to Pillow, as animations and all damage are."""
    import numpy as np

    cv2, end = opencv(), webp_image_end(data)
    if cv2 is None or not end:
        return None
    if end < len(data):  # a damaged image would be read on into what follows it
        data = b"RIFF" + (end - 8).to_bytes(4, "little") + data[8:end]
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels: PixelArray | None = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        return None
    return pixels
