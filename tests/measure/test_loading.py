"""Protocols `loading`, `load_n` and `ceiling`, each once for real."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wallclock.corpus import synthetic
from wallclock.errors import Unavailable, UserError
from wallclock.measure import ceilings
from wallclock.measure.ceilings import ceiling
from wallclock.measure.loading import _steady, load_n, loading
from wallclock.spec import Cell, CorpusSpec, ModelSpec, Recipe, Slice

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

MODEL = ModelSpec("null", weights="none", input_px=32, service_ms_per_image=1.0)
OURS = Recipe(
    "fast",
    "simplejpeg",
    "torch",
    "bilinear",
    "threads",
    batch_size=4,
    dct_scale="auto",
    normalize_on="device",
)
PAPER = Recipe("paper", "simplejpeg", "opencv", "linear", "dataloader", workers=1, batch_size=4)
FIDELITY = {"images": 6, "vectors": 0}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Slice:
    folder = tmp_path_factory.mktemp("corpus")
    return synthetic.prepare(
        CorpusSpec("synthetic", progressive_share=0.5),
        "small_256",
        12,
        folder,
        lambda done, total, what: None,
    )


def nothing(done: int) -> None:
    """Nobody listens."""


def test_a_loaders_rate_and_its_own_pictures(corpus: Slice, tmp_path: Path) -> None:
    params = {"seconds": 0.05, "fidelity": FIDELITY}
    ours = loading(
        Cell("frontier", "loading", "ours", 0, OURS, corpus, MODEL, params), tmp_path, nothing
    )
    assert ours.samples["wall"][0] >= 50_000_000
    assert sum(ours.samples["batch"]) <= ours.samples["wall"][0]
    assert ours.values["n_loaded"] == 4 * len(ours.samples["batch"])
    assert ours.values["n_loaded"] > ours.values["n_unique"] == 12
    paper = loading(
        Cell("frontier", "loading", "paper", 0, PAPER, corpus, MODEL, params), tmp_path, nothing
    )
    found, other = ours.values["fidelity"], paper.values["fidelity"]
    assert found["psnr_db"] > 40 > other["psnr_db"], "one antialiases, the other does not"
    assert found["psnr_gain_vs_paper_db"] > 0
    assert other["psnr_gain_vs_paper_db"] == pytest.approx(0, abs=0.5), (
        "float32 and back is a rounding"
    )


def test_later_repeats_do_not_look_at_pictures_again(corpus: Slice, tmp_path: Path) -> None:
    params = {"seconds": 0.01, "fidelity": FIDELITY, "subset": "progressive"}
    found = loading(
        Cell("frontier", "loading", "ours", 1, OURS, corpus, MODEL, params), tmp_path, nothing
    )
    assert "fidelity" not in found.values
    assert 0 < found.values["n_unique"] < 12
    assert found.values["progressive_share"] == 1.0


def test_a_subset_that_is_empty_is_an_error(corpus: Slice, tmp_path: Path) -> None:
    cell = Cell(
        "frontier",
        "loading",
        "ours",
        1,
        OURS,
        corpus,
        MODEL,
        {"seconds": 0.01, "subset": "arithmetic"},
    )
    with pytest.raises(UserError, match="no arithmetic JPEG"):
        loading(cell, tmp_path, nothing)


def test_a_run_of_n_images_counts_its_start(corpus: Slice, tmp_path: Path) -> None:
    found = load_n(
        Cell("scaling", "load_n", "n", 0, OURS, corpus, MODEL, {"n": 31}), tmp_path, nothing
    )
    assert (found.values["n_loaded"], found.values["n_unique"]) == (31, 12)
    assert len(found.samples["wall"]) == 1


@pytest.mark.parametrize("recipe", [OURS, PAPER], ids=["threads", "dataloader"])
@pytest.mark.parametrize("kind", ["decode_files", "decode_memory", "forward", "synthetic"])
def test_ceilings(corpus: Slice, tmp_path: Path, recipe: Recipe, kind: str) -> None:
    before = os.sched_getaffinity(0)
    cell = Cell(
        "limits", "ceiling", kind, 0, recipe, corpus, MODEL, {"kind": kind, "seconds": 0.02}
    )
    found = ceiling(cell, tmp_path, nothing)
    assert found.values["n_loaded"] > 0
    assert os.sched_getaffinity(0) == before
    if kind.startswith("decode"):
        assert len(found.values["core_img_per_s"]) == len(before)
        assert sum(found.values["core_img_per_s"]) == pytest.approx(found.values["img_per_s"])
    else:
        assert found.values["img_per_s"] <= 1000, "the mock model takes a millisecond an image"


def test_where_the_device_is_the_host_nothing_is_copied(corpus: Slice, tmp_path: Path) -> None:
    cell = Cell(
        "limits", "ceiling", "h2d", 0, OURS, corpus, MODEL, {"kind": "h2d", "seconds": 0.02}
    )
    with pytest.raises(Unavailable, match="the device is the host"):
        ceiling(cell, tmp_path, nothing)


def test_batches_that_come_in_bursts_are_counted_in_whole_bursts() -> None:
    stream = ((list(range(5)), np.zeros((5, 2, 2, 3), np.uint8)) for _ in range(1000))
    samples, n = _steady(stream, seconds=0.0, at_least=9, burst=4, progress=nothing)
    assert (len(samples["batch"]), n) == (12, 60)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes:UserWarning")
def test_a_pass_of_workers_takes_eight_of_their_bursts_however_short(
    corpus: Slice, tmp_path: Path
) -> None:
    recipe = replace(PAPER, workers=4)
    cell = Cell(
        "frontier",
        "loading",
        "paper",
        1,
        recipe,
        corpus,
        MODEL,
        {"seconds": 0.0, "fidelity": FIDELITY},
    )
    assert len(loading(cell, tmp_path, nothing).samples["batch"]) == 8 * 4


def test_a_pinned_process_that_dies_does_not_leave_the_others_waiting(
    corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, first = ceilings._decoding, min(os.sched_getaffinity(0))

    def dies(*arguments: Any, **named: Any) -> Any:
        if os.sched_getaffinity(0) == {first}:
            raise RuntimeError("made to die")
        return real(*arguments, **named)

    monkeypatch.setattr(ceilings, "_decoding", dies)
    cell = Cell(
        "limits", "ceiling", "x", 0, OURS, corpus, MODEL, {"kind": "decode_files", "seconds": 0.01}
    )
    with pytest.raises(RuntimeError, match="a pinned process ended with status"):
        ceiling(cell, tmp_path, nothing)
