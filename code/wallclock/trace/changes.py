"""What each change does to a program's work. A table, `CHANGES`, in the order of combining.

Each changes the costs of an image; how far is uncertain, so that each takes a `luck`: 0 for the
expected cost, -1 and 1 for the ends of what the sources in `decode_costs` and the notes here allow.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log2

from wallclock.trace.decode_costs import is_jpeg
from wallclock.trace.pictures import (
    are_large,
    as_jpeg,
    can_shrink,
    decode_for_target,
    decode_scaled,
    slow_formats,
    with_thumbnails,
)
from wallclock.trace.sizes import MARGIN
from wallclock.trace.work import Work

#: Core time of an image's loading with twice as many cores at work, at worst: they share caches and
#: memory. An assumption; the reference run has two cores.
_CONTENTION = 1.25
#: Threads a core that wait for the storage at a time.
_WAITING_PER_CORE = 4
#: uint8 over float32.
_BYTES = 0.25
#: Times as many images a call.
_LARGER = 4
#: Waits for the storage below this part of loading are none.
_NOTICEABLE_WAIT = 0.05
#: Of a storage's time, what a fast one still takes.
_FAST_STORAGE = 0.1

#: The group of changes that write other files.
FILES = "files"

Apply = Callable[[Work, float], Work]


@dataclass(frozen=True)
class Change:
    """A change of a program.

    `applies`: whether the program has what it changes. `group`: of several changes of one group
    only one can be made. `code`: the lines to write, for this work. `cost`: what it takes.
    """

    name: str
    title: Callable[[Work], str]
    group: str
    applies: Callable[[Work], bool]
    apply: Apply
    code: Callable[[Work], str]
    cost: str


def _scaled_code(work: Work) -> str:
    target = work.target
    if target is None:
        return ""
    if any(picture.with_pillow for picture in work.pictures):
        return f'image.draft("RGB", {target.least})  # right after Image.open'
    return f"image = wallclock.decode(path, {target.code})"


def _open_images(work: Work, luck: float) -> Work:
    """Threads that write uint8 into the batch: nothing is collated or sent between processes."""
    workers = more_workers(work)
    loaded = _contended(decode_for_target(work, luck), workers, luck)
    converted = _uint8(loaded, luck) if work.on_gpu else loaded
    threads = replace(
        converted,
        workers=workers,
        engine="threads",
        # From image to array to tensor: what the loader does itself, or the program's own code.
        other_s=converted.other_s * (1 - luck) / 2,
        assemble_s=0.0,
        send_s=0.0,
        main_s=work.main_s - work.spared_s * (1 + luck) / 2,
    )
    return _waiting_together(threads, work.workers, luck)


# --- workers, copies, calls ---------------------------------------------------------------------


def _contended(work: Work, workers: int, luck: float) -> Work:
    """Loading on more cores at once, which costs each more: they share caches and memory."""
    busy, more = min(work.cores, max(1, work.workers)), min(work.cores, workers)
    if more <= busy:
        return work
    factor = _CONTENTION ** (log2(more / busy) * (1 - luck) / 2)
    return replace(
        work,
        read_s=work.read_s * factor,
        decode_s=work.decode_s * factor,
        resize_s=work.resize_s * factor,
        normalize_s=work.normalize_s * factor,
        transform_s=work.transform_s * factor,
        other_s=work.other_s * factor,
    )


def _waiting_together(work: Work, before: int, luck: float) -> Work:
    """More reads at a time: the storage gives each its time (1), or all of them together (-1)."""
    ratio = work.workers / max(1, before)
    if ratio <= 1:
        return work
    return replace(work, wait_s=work.wait_s * ratio ** ((1 - luck) / 2))


def more_workers(work: Work) -> int:
    """How many workers to have: a core each, and more of them where they wait for the storage."""
    return work.cores * (_WAITING_PER_CORE if work.wait_s > work.load_s else 1)


def _workers(work: Work, luck: float) -> Work:
    count = more_workers(work)
    engine = work.engine if work.workers else _new_engine(work)
    more = replace(_contended(work, count, luck), workers=count, engine=engine)
    return _waiting_together(more, work.workers, luck)


def _new_engine(work: Work) -> str:
    return "dataloader" if work.has_torch else "threads"


def _workers_code(work: Work) -> str:
    count = more_workers(work)
    engine = work.engine if work.workers else _new_engine(work)
    if engine == "threads":
        return f"images = ThreadPoolExecutor(max_workers={count}).map(load, paths)"
    return f"DataLoader(dataset, batch_size={work.loader_batch}, num_workers={count})"


def _uint8(work: Work, luck: float) -> Work:
    """A quarter of the bytes between processes and to the device, which normalizes them."""
    left = _BYTES * (1 - luck / 2)
    return replace(
        work,
        normalize_s=0.0,
        assemble_s=work.assemble_s * left,
        send_s=work.send_s * left,
        h2d_s=work.h2d_s * left,
    )


def _larger_batch(work: Work, luck: float) -> Work:
    """Only what a call takes beside the device's work shrinks: not all of it, at worst."""
    share = (3 + luck) / 4 * (1 - 1 / _LARGER)
    return replace(
        work, main_s=work.main_s - share * work.call_s, batch_size=work.batch_size * _LARGER
    )


def _fast_storage(work: Work, luck: float) -> Work:
    return replace(work, wait_s=work.wait_s * _FAST_STORAGE * (1 - luck))


# --- the code to write --------------------------------------------------------------------------


def _loader_code(work: Work) -> str:
    code = work.target.code if work.target else ""
    return f"load = wallclock.loader_for({code})  # path → Pillow image, in your dataset"


def _open_images_code(work: Work) -> str:
    target = work.target
    if target is None or target.mode == "crop":
        geometry = f"size={_px(work)}, augment=True, shuffle=True"
    elif target.mode == "squash":
        geometry = f"size={target.code}"
    else:
        geometry = target.code
    waiting = f", workers={more_workers(work)}" if work.wait_s > work.load_s else ""
    return (
        f"with wallclock.open_images(paths, {geometry}, batch={work.loader_batch}{waiting})"
        " as batches:\n"
        "    for batch in batches:\n"
        "        batch.ids, batch.images  # uint8 (n, height, width, 3)"
    )


def _px(work: Work) -> int:
    return work.target.px if work.target else 224


def _side(work: Work) -> int:
    return work.target.thumbnail_px if work.target else ceil(MARGIN * _px(work))


def _thumbnails_code(work: Work) -> str:
    side = _side(work)
    return (
        'image = Image.open(path).convert("RGB")\n'
        f'ImageOps.cover(image, ({side}, {side})).save(f"small/{{path.stem}}.jpg", quality=95)'
    )


CHANGES = (
    Change(
        name="faster storage",
        title=lambda work: "images on a local disk or in memory",
        group="",
        applies=lambda work: work.wait_s > _NOTICEABLE_WAIT * work.load_s,
        apply=_fast_storage,
        code=lambda work: "cp -r IMAGES /path/on/a/local/disk",
        cost="a copy of the images; more memory",
    ),
    Change(
        name="another format",
        title=lambda work: f"{', '.join(slow_formats(work))} kept as baseline JPEG",
        group=FILES,
        applies=lambda work: bool(slow_formats(work)),
        apply=as_jpeg,
        code=lambda work: (
            'Image.open(path).convert("RGB").save(f"jpeg/{path.stem}.jpg", quality=95)'
        ),
        cost="one pass over the images; JPEG loses detail, this line EXIF",
    ),
    Change(
        name="thumbnails",
        title=lambda work: f"thumbnails of {_side(work)} px, kept for the next runs",
        group=FILES,
        applies=are_large,
        apply=with_thumbnails,
        code=_thumbnails_code,
        cost="one pass over the images, without EXIF; pays off from the second run on",
    ),
    Change(
        name="scaled decode",
        title=lambda work: "JPEGs decoded at a reduced scale",
        group="loader",
        applies=can_shrink,
        apply=decode_scaled,
        code=_scaled_code,
        cost="pixels differ slightly",
    ),
    Change(
        name="loader_for",
        title=lambda work: "wallclock.loader_for in your own dataset",
        group="loader",
        applies=lambda work: any(is_jpeg(p.format) for p in work.pictures) and _resizes_whole(work),
        apply=decode_for_target,
        code=_loader_code,
        cost="pixels differ slightly",
    ),
    Change(
        name="open_images",
        title=lambda work: "wallclock.open_images (threads, scaled decode)",
        group="loader",
        applies=lambda work: bool(work.pictures) and work.target is not None,
        apply=_open_images,
        code=_open_images_code,
        cost="another loop; pixels differ slightly",
    ),
    Change(
        name="more workers",
        title=lambda work: f"{more_workers(work)} workers instead of {work.workers or 'none'}",
        group="workers",
        applies=lambda work: more_workers(work) > work.workers,
        apply=_workers,
        code=_workers_code,
        cost="memory of each process",
    ),
    Change(
        name="uint8",
        title=lambda work: "uint8 to the device, normalized there",
        group="uint8",
        applies=lambda work: work.on_gpu and work.normalize_s > 0,
        apply=_uint8,
        code=lambda work: (
            "images = (images.to(device).float() / 255 - mean) / std  # after the copy"
        ),
        cost="a transform without ToTensor and Normalize",
    ),
    Change(
        name="larger batch",
        title=lambda work: f"batches of {work.batch_size * _LARGER} instead of {work.batch_size}",
        group="",
        applies=lambda work: work.call_s > 0,
        apply=_larger_batch,
        code=lambda work: f"batch_size = {work.batch_size * _LARGER}",
        cost="memory on the device",
    ),
)

#: Changes that contain others.
INCLUDES = {"open_images": ("more workers", "uint8")}


def _resizes_whole(work: Work) -> bool:
    """Whether the images are resized as a whole: the loader then does decode and resize."""
    return work.target is not None and work.target.mode != "crop"
