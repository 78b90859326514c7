"""What a change of the pictures, or of the way to decode them, leaves of decode, resize and read.

Times of the trace are multiplied by a ratio of costs (`decode_costs`). `luck`: 0 for the expected
ratio, -1 and 1 for the ends of what the costs' error allows.
"""

from dataclasses import replace

from wallclock.trace.decode_costs import (
    FRACTION_ERROR,
    SLOWER_THAN_JPEG,
    is_jpeg,
    jpeg_ns,
    resize_ns,
)
from wallclock.trace.sizes import Target
from wallclock.trace.work import Picture, Resized, Work

#: Bytes per pixel of a small JPEG of quality 95.
_THUMBNAIL_BYTES_PER_PIXEL = 0.5
#: Bytes of a baseline JPEG over those of the same as a progressive one (formats.csv).
_BASELINE_BYTES = 1.16
#: Thumbnails pay off for pictures of so many times their pixels.
_WORTH_KEEPING = 4.0


def decode_ns(picture: Picture, luck: float) -> float:
    """Nanoseconds of one picture."""
    pixels = picture.size[0] * picture.size[1]
    if is_jpeg(picture.format):
        format, slower = picture.format, 1.0
    else:
        # A format that was not measured is as slow as a JPEG: nothing is promised for it.
        low, high = SLOWER_THAN_JPEG.get(picture.format, (1.0, 1.0))
        format, slower = "JPEG", (low * high) ** 0.5 * (high / low) ** (luck / 2)
    density = picture.bytes_per_pixel if is_jpeg(picture.format) else None
    return (
        slower * pixels * jpeg_ns(format, density, picture.scale, with_pillow=picture.with_pillow)
    )


def with_pictures(work: Work, pictures: tuple[Picture, ...], luck: float) -> Work:
    """The same with other pictures or other ways to decode them."""
    now = sum(picture.count * decode_ns(picture, luck) for picture in work.pictures)
    then = sum(picture.count * decode_ns(picture, luck) for picture in pictures)
    return replace(work, decode_s=work.decode_s * _fraction(then, now, luck), pictures=pictures)


def with_resized(work: Work, resized: tuple[Resized, ...], luck: float, library: str = "") -> Work:
    """The same with other sizes to resize; `library`: by another one."""
    now = sum(_resize_ns(kind) for kind in work.resized)
    then = sum(_resize_ns(kind, library) for kind in resized)
    return replace(work, resize_s=work.resize_s * _fraction(then, now, luck), resized=resized)


def _resize_ns(kind: Resized, library: str = "") -> float:
    read = kind.size[0] * kind.size[1] / kind.scale**2
    name = library or ("pillow" if kind.with_pillow else "torch")
    return kind.count * resize_ns(name, read, kind.made[0] * kind.made[1])


def _fraction(then: float, now: float, luck: float) -> float:
    if now <= 0 or then == now:
        return 1.0
    return then / now * (1 - luck * FRACTION_ERROR)


def decode_scaled(work: Work, luck: float) -> Work:
    """JPEGs at the smallest scale that suffices, by the program's own decoder."""
    pictures = tuple(_shrink(picture, work.target) for picture in work.pictures)
    return with_resized(with_pictures(work, pictures, luck), _shrink_resized(work), luck)


def _shrink_resized(work: Work) -> tuple[Resized, ...]:
    target = work.target
    if target is None or not any(is_jpeg(picture.format) for picture in work.pictures):
        return work.resized
    return tuple(replace(kind, scale=target.scale(kind.size)) for kind in work.resized)


def _shrink(picture: Picture, target: Target | None) -> Picture:
    if target is None or not is_jpeg(picture.format):
        return picture
    return replace(picture, scale=max(picture.scale, target.scale(picture.size)))


def can_shrink(work: Work) -> bool:
    """Whether any picture is a JPEG that could be decoded smaller than it is."""
    return any(_shrink(picture, work.target) != picture for picture in work.pictures)


def decode_for_target(work: Work, luck: float) -> Work:
    """`wallclock.loader_for` in the program's own dataset: its own workers, our decode, resize."""
    pictures = tuple(
        replace(_shrink(picture, work.target), with_pillow=False)
        if is_jpeg(picture.format)
        else picture
        for picture in work.pictures
    )
    library = "torch" if work.has_torch else ""
    decoded = with_pictures(work, pictures, luck)
    return with_resized(decoded, _shrink_resized(work), luck, library)


def with_thumbnails(work: Work, luck: float) -> Work:
    """The same with small JPEGs in the place of the pictures."""
    target = work.target
    if target is None:
        return work
    side = target.thumbnail_px
    pictures, resized = [], []
    bytes_now = bytes_then = 0.0
    for picture in work.pictures:
        shrunk = min(1.0, side / min(picture.size))
        size = max(1, round(picture.size[0] * shrunk)), max(1, round(picture.size[1] * shrunk))
        small = replace(
            picture, format="JPEG", size=size, scale=1, bytes_per_pixel=_THUMBNAIL_BYTES_PER_PIXEL
        )
        pictures.append(small)
        density = picture.bytes_per_pixel or _THUMBNAIL_BYTES_PER_PIXEL
        bytes_now += picture.count * density * picture.size[0] * picture.size[1]
        bytes_then += picture.count * _THUMBNAIL_BYTES_PER_PIXEL * size[0] * size[1]
    for kind in work.resized:
        shrunk = min(1.0, side / min(kind.size))
        size = max(1, round(kind.size[0] * shrunk)), max(1, round(kind.size[1] * shrunk))
        resized.append(replace(kind, size=size, scale=1))
    # A small file still takes a round trip: half of the read's time stays at worst.
    read = min(1.0, max(bytes_then / bytes_now if bytes_now else 1.0, 0.3 - 0.2 * luck))
    smaller = replace(work, read_s=work.read_s * read, wait_s=work.wait_s * read)
    return with_resized(with_pictures(smaller, tuple(pictures), luck), tuple(resized), luck)


def are_large(work: Work) -> bool:
    """Whether the pictures have so many more pixels than thumbnails that these pay off."""
    target = work.target
    if target is None or target.mode == "crop" or not work.pictures:
        return False
    kept = target.thumbnail_px**2
    pixels = sum(picture.count * picture.size[0] * picture.size[1] for picture in work.pictures)
    return pixels > _WORTH_KEEPING * kept * sum(picture.count for picture in work.pictures)


def as_jpeg(work: Work, luck: float) -> Work:
    """The same with baseline JPEGs in the place of slower formats."""
    return with_pictures(work, tuple(_baseline(picture) for picture in work.pictures), luck)


def _baseline(picture: Picture) -> Picture:
    if picture.format not in SLOWER_THAN_JPEG:
        return picture
    density = picture.bytes_per_pixel if is_jpeg(picture.format) else None
    larger = None if density is None else density * _BASELINE_BYTES
    return replace(picture, format="JPEG", bytes_per_pixel=larger)


def slow_formats(work: Work) -> list[str]:
    """The formats of the program's images that decode slower than baseline JPEG."""
    return sorted({p.format for p in work.pictures if p.format in SLOWER_THAN_JPEG})
