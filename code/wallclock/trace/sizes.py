"""What sizes and formats a program decoded, and what it resized them to."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from wallclock.predict.pictures import Size, Target, is_jpeg
from wallclock.trace.record import Function, ImageKind, Trace

#: Rows of the table of images.
MOST_ROWS = 4
#: What most images share is said of all.
_MOST = 0.5

#: Mode of a resize → what its results have in common; of equals, the first.
_SIDES: Mapping[str, Callable[[Size], Size]] = {
    "squash": lambda size: size,
    "shortest": lambda size: (min(size), min(size)),
    "longest": lambda size: (max(size), max(size)),
}


@dataclass(frozen=True)
class Sizes(ImageKind):
    """Images of one format that one function decoded or resized, of whatever sizes.

    `source`, `made`: the median image's, by pixels of the source; `is_typical`: whether more than
    half of them have exactly these.
    """

    is_typical: bool = True


def target_of(trace: Trace) -> Target | None:
    """From the program's resizes; None if it has none, or no size that most of them share."""
    resized = trace.kinds("resize")
    if not resized:
        return None
    total = sum(kind.count for kind in resized)
    decoded = {tuple(sorted(kind.made)) for kind in trace.kinds("decode")}
    from_decoded = sum(k.count for k in resized if tuple(sorted(k.source)) in decoded)
    is_cut = bool(decoded) and from_decoded < _MOST * total
    # Images of one shape only have all of it in common: of equal modes the first is right for them.
    counts = {mode: _most_common(resized, side) for mode, side in _SIDES.items()}
    mode, (size, count) = max(counts.items(), key=lambda entry: entry[1][1])
    return Target(size, "crop" if is_cut else mode) if count > _MOST * total else None


def _most_common(kinds: Sequence[ImageKind], side: Callable[[Size], Size]) -> tuple[Size, int]:
    counts: Counter[Size] = Counter()
    for kind in kinds:
        counts[side(kind.made)] += kind.count
    return counts.most_common(1)[0]


def tabulate_sizes(trace: Trace) -> list[Sizes]:
    """What was decoded by function and format, then what was resized; the most frequent first."""
    groups: dict[tuple[Function, str], list[ImageKind]] = defaultdict(list)
    for kind in (*trace.kinds("decode"), *trace.kinds("resize")):
        groups[kind.function, kind.format].append(kind)
    rows = [_summarize(kinds) for kinds in groups.values()]
    rows.sort(key=lambda row: (row.function.stage != "decode", -row.count))
    return rows[:MOST_ROWS]


def full_size_share(trace: Trace, target: Target | None) -> float:
    """Of the decoded pixels, the part in JPEGs that could have been decoded smaller."""
    if target is None:
        return 0.0
    kinds = trace.kinds("decode")
    total = sum(kind.pixels for kind in kinds)
    shrinkable = sum(
        kind.pixels
        for kind in kinds
        if is_jpeg(kind.format) and target.scale(kind.source) > scale_of(kind)
    )
    return shrinkable / total if total else 0.0


def scale_of(kind: ImageKind) -> int:
    """1, 2, 4 or 8: by how much a decoder has shrunk these images already."""
    longest = max(kind.source)
    return next((s for s in (8, 4, 2) if max(kind.made) <= ceil(longest / s)), 1)


def say_size(size: Sequence[int]) -> str:
    """`2560 × 1920`."""
    return f"{size[0]} × {size[1]}"


def say_target(target: Target) -> str:
    """`224 px`, `640 × 480 px`."""
    if target.mode == "squash" and target.size[0] != target.size[1]:
        return f"{say_size(target.size)} px"
    return f"{target.px} px"


def _summarize(kinds: Iterable[ImageKind]) -> Sizes:
    by_size = sorted(kinds, key=lambda kind: (kind.source[0] * kind.source[1], kind.source))
    count = sum(kind.count for kind in by_size)
    up_to = accumulate(kind.count for kind in by_size)
    middle = next(kind for kind, n in zip(by_size, up_to, strict=True) if n >= count / 2)
    what = middle.function, middle.format, middle.source, middle.made
    n_bytes = sum(kind.n_bytes for kind in by_size)
    return Sizes(*what, count, n_bytes, is_typical=middle.count > _MOST * count)
