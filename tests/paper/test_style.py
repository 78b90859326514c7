"""Colours and labels of figures, and figures of parts of a job."""

from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.colors import to_rgb

from experiments.ablation import cells as ablation
from experiments.batch import figure as fig_batch
from experiments.cluster import cells as cluster
from experiments.formats import cells as formats
from experiments.formats import figure as fig_formats
from experiments.ladder import cells as ladder
from experiments.ladder import figure as fig_ladder
from experiments.scaling import cells as scaling
from experiments.storage import cells as storage
from experiments.storage import figure as fig_storage
from harness.drawing import style, sweep
from harness.drawing.rendering import NothingToDrawError
from harness.table import read_table
from tests.paper.tables import REFERENCE, copy_tables, drawn, edit, markers, save

# --- palette --------------------------------------------------------------------------------------


Floats = npt.NDArray[np.float64]
#: Of linear RGB.
VISIONS: Mapping[str, Floats] = {
    "full": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    # Luminance alone (Rec. ITU-R BT.709).
    "grey": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
}
#: Linear sRGB → XYZ (IEC 61966-2-1), and the white of D65.
XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)  # fmt: skip
WHITE = XYZ.sum(axis=1)
#: Several times a just noticeable difference: of areas that touch, and of others.
LEAST_BESIDE, LEAST = 20.0, 12.0
#: In grey, where the order of the stages and their labels help.
LEAST_GREY = 4.0


def lab(colour: str, vision: str) -> Floats:
    """L*, a* and b* of a colour as that vision sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    ratios = XYZ @ np.clip(VISIONS[vision] @ linear, 0, 1) / WHITE
    small = (6 / 29) ** 3
    x, y, z = np.where(ratios > small, np.cbrt(ratios), ratios / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(a: str, b: str, vision: str) -> float:
    return float(np.linalg.norm(lab(a, vision) - lab(b, vision)))


@pytest.mark.parametrize("vision", VISIONS)
def test_stages_that_touch_differ(vision: str) -> None:
    """A hatch is a difference in grey, not a substitute for one of colour."""
    for (first, a), (second, b) in pairwise(style.STAGE_STYLES.items()):
        if vision == "grey" and a[1] != b[1]:
            continue
        least = LEAST_GREY if vision == "grey" else LEAST_BESIDE
        apart = distance(a[0], b[0], vision)
        assert apart >= least, f"{first} and {second}: {apart:.1f}"


def test_a_stage_has_one_colour() -> None:
    """On the page of `wallclock trace`, which has no matplotlib, as in the figures."""
    css = (resources.files("wallclock.trace") / "trace.css").read_text(encoding="utf-8")
    for stage, (fill, _) in style.STAGE_STYLES.items():
        assert f".stage-{stage} {{ background: {fill};" in css


@pytest.mark.parametrize("fill", [fill for fill, _ in style.STAGE_STYLES.values()])
def test_text_inside_can_be_read(fill: str) -> None:
    """WCAG 2.2, 1.4.3: large text has a contrast of 3 at least."""
    ink = "#FFFFFF" if style.is_dark(fill) else style.INK
    light, dark = sorted((luminance(fill), luminance(ink)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3


def luminance(colour: str) -> float:
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


# --- part figures ---------------------------------------------------------------------------------


def test_too_few_jobs_have_no_line(tmp_path: Path) -> None:
    copy_tables(tmp_path, scaling.CSV, source=REFERENCE)
    save(tmp_path / scaling.CSV, read_table(tmp_path / scaling.CSV)[:2])
    with pytest.raises(NothingToDrawError, match="fewer than 3 jobs"):
        drawn("fig-18-scaling", tmp_path)


def test_a_ladder_without_arrivals_or_without_a_model(tmp_path: Path) -> None:
    copy_tables(tmp_path, *ladder.TABLES, source=REFERENCE)
    assert markers(drawn("fig-19-ladder", tmp_path).axes[1].lines, "^")
    (tmp_path / "ladder-latency.csv").unlink()
    assert not markers(drawn("fig-19-ladder", tmp_path).axes[1].lines, "^")
    rows = read_table(tmp_path / ladder.CSV)
    save(tmp_path / ladder.CSV, [row for row in rows if row["setup"] != "model"])
    assert len(drawn("fig-19-ladder", tmp_path).axes) == 2
