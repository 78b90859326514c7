"""Protocol `ceiling`: one part of a pass on real files and processes."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.protocols import ceilings
from harness.protocols.protocol import Measurement, no_progress
from harness.spec import Cell, Slice
from tests.harness.protocols.conftest import FORKS
from wallclock.errors import Unavailable
from wallclock.recipe import ModelSpec, Recipe

pytestmark = FORKS

MODEL = ModelSpec("null", weights="none", input_px=32, service_ms_per_image=1.0)
OURS = Recipe("fast", "simplejpeg", "torch", engine="threads", batch_size=4, dct_scale="auto")
OURS = replace(OURS, normalize_on="device")
PAPER = Recipe("paper", "simplejpeg", "opencv", "linear", "dataloader", workers=1, batch_size=4)


def run(corpus: Slice, recipe: Recipe, **params: Any) -> Measurement:
    cell = Cell("limits", "ceiling", "x", 0, recipe, corpus, MODEL, params)
    return ceilings.ceiling(cell, Path(), no_progress)


@pytest.mark.parametrize("recipe", [OURS, PAPER], ids=["threads", "dataloader"])
@pytest.mark.parametrize("kind", ["decode_files", "decode_memory", "forward", "synthetic"])
def test_ceilings(
    corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.sched_getaffinity(0)
    result = run(corpus, recipe, kind=kind, seconds=0.02)
    assert result.values["n_loaded"] > 0
    assert os.sched_getaffinity(0) == before
    if kind.startswith("decode"):
        rates = result.values["core_img_per_s"]
        assert len(rates) == len(before)
        assert sum(rates) == pytest.approx(result.values["img_per_s"])
    else:
        assert result.values["img_per_s"] <= 1000, "the mock model takes a millisecond an image"


@pytest.mark.slow
def test_the_engines_own_ceiling(corpus: Slice) -> None:
    result = run(corpus, OURS, kind="engine", seconds=0.02)
    assert result.values["n_loaded"] % OURS.batch_size == 0
    assert result.values["img_per_s"] > 0


def test_nothing_is_copied_on_the_host(corpus: Slice) -> None:
    with pytest.raises(Unavailable, match="the device is the host"):
        run(corpus, OURS, kind="h2d", seconds=0.02)


def test_a_process_that_dies_stops_all(corpus: Slice, monkeypatch: pytest.MonkeyPatch) -> None:
    real, first = ceilings._decoding, min(os.sched_getaffinity(0))

    def dies(*arguments: Any, **named: Any) -> Any:
        if os.sched_getaffinity(0) == {first}:
            raise RuntimeError("fails in one process")
        return real(*arguments, **named)

    monkeypatch.setattr(ceilings, "_decoding", dies)
    with pytest.raises(RuntimeError, match="a process ended with status"):
        run(corpus, OURS, kind="decode_files", seconds=0.01)
