"""Levels of fidelity: how near each picture of a loader is to Pillow's antialiased one.

One absolute scale for all image sets: the PSNR of the worst compared picture. A rule relative to
another filter would ask more of a picture that is easy for all of them, and less of a hard one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common import Row, fidelity_columns

#: Level → the least PSNR of any compared picture, in dB; the strictest first. What antialiases the
#: exact extent of an image reaches 40 at any scale. What antialiases with another filter, or
#: stretches by less than a pixel, reaches 30; what aliases does not.
LEVELS: Mapping[str, float] = {"faithful": 40.0, "close": 30.0}
FAITHFUL, CLOSE = LEVELS


def reaches(reached: object, level: str) -> bool:
    """Whether a row whose `level` is `reached` reaches `level`, too."""
    return reached in LEVELS and LEVELS[str(reached)] >= LEVELS[level]


def judge(values: Mapping[str, Any], weights: str) -> Row:
    """The fidelity columns of a loader's pictures, `level`, and the gate: passed by any level.

    `values`: of `harness.protocols.fidelity.compare_loader_output`. Older records have no
    `psnr_db_min`: these pictures are not judged.
    """
    row = fidelity_columns(values, weights)
    if values.get("psnr_db_min") is None:
        return row | {"level": "", "gate": "not checked"}
    least = values["psnr_db_min"]
    level = next((name for name, decibels in LEVELS.items() if least >= decibels), "")
    return row | {"level": level, "gate": "passed" if level else "failed"}


def in_words(level: str) -> str:
    """`loader with 40 dB in every image`."""
    return f"loader with {LEVELS[level]:g} dB in every image"


def mark(level: str, colour: str) -> dict[str, Any]:
    """How a marker is filled: in full for the strictest level, half for a looser one, else not."""
    if level == FAITHFUL:
        return {"color": colour}
    if level:
        return {"color": colour, "fillstyle": "bottom", "markerfacecoloralt": "white"}
    return {"color": "white"}


def marks_remark(rows: Sequence[Mapping[str, str]]) -> str:
    """What the filling means, of those that `rows` have."""
    present = {row["level"] for row in rows}
    meanings = [
        f"{filling}: every compared picture has {decibels:g} dB"
        for filling, (level, decibels) in zip(
            ("filled", "half filled"), LEVELS.items(), strict=True
        )
        if level in present
    ]
    return ", ".join([*meanings, "hollow: neither"] if "" in present else meanings)
