"""The network bound to a recipe, and vectors that are no numbers."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import making
from tests.families import FAMILIES
from tests.wallclock.job.conftest import QUICK, content
from wallclock.errors import ImageError, UserError
from wallclock.infer.finite import FiniteRows
from wallclock.infer.inference import Inference
from wallclock.infer.network import Embedder, _of_length_1, open_embedder
from wallclock.job import embed
from wallclock.job.dataset import Dataset
from wallclock.job.listing import list_items
from wallclock.job.plan import Job, parts_of
from wallclock.job.run import Run
from wallclock.job.settings import JobSettings
from wallclock.job.stores.folder import Folder
from wallclock.loader.batch import Batch
from wallclock.recipe import Recipe
from wallclock.service.modules import Embedding

RECIPE = Recipe("tiny", batch_size=2, normalize_on="device")


def pixels(n: int, height: int, width: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, (n, height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("runtime", ["numpy", "torch"])
@pytest.mark.parametrize(("dtype", "scale"), [("f2", 1), ("f4", 8e35), ("f4", 1e-30)])
def test_length_1(runtime: str, dtype: str, scale: float) -> None:
    """Also where the sum of squares is over the range of the type; zeros stay zeros."""
    rows = np.array([[300.0, 400.0], [0.0, 0.0], [-1e-3, 0.0]], dtype)
    rows[0] *= scale
    batch = torch.from_numpy(rows) if runtime == "torch" else rows
    vectors = np.asarray(_of_length_1(lambda batch: batch)(batch))
    np.testing.assert_allclose(vectors, [[0.6, 0.8], [0.0, 0.0], [-1.0, 0.0]], rtol=1e-6)
    assert vectors.dtype == np.float32


def test_network_of_length_1(tmp_path: Path) -> None:
    """The direction is that of the vectors as they are; images are 32 px high and 48 wide."""
    FAMILIES["dinov2"](tmp_path)
    recipe = replace(RECIPE, preprocess="squash:32x48,bilinear")
    model = JobSettings(model=str(tmp_path)).resolved_model()
    images = pixels(3, 32, 48)
    plain = open_embedder(recipe, model).embed(images)
    scaled = open_embedder(recipe, replace(model, normalize=True)).embed(images)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    np.testing.assert_allclose(scaled, plain / lengths, rtol=1e-4, atol=1e-6)
    assert np.abs(lengths - 1).min() > 0.1


REASON = "not finite in fp16; set dtype=fp32"
#: The last one is damaged.
IMAGES = [*(making.jpeg(32, 24, seed) for seed in range(5)), b""]


def overflowing(embedder: Embedder, colours: set[bytes] | None = None) -> Embedder:
    """Half precision that has no number for some of the mock's vectors, or for all."""

    def forward(batch: Any) -> Any:
        vectors = np.array(embedder.forward(batch), np.float32)
        for vector in vectors:
            if colours is None or vector.tobytes() in colours:
                vector[len(vector) // 2] = np.inf
        return vectors

    return replace(embedder, forward=forward, labels={"dtype": "fp16"})


class Late(Inference):
    """As on a GPU: the vectors of the last batches are not there yet."""

    behind: tuple[Batch, ...] = ()

    def submit(self, batch: Batch) -> None:
        self.behind += (replace(batch, images=np.array(batch.images)),)
        if len(self.behind) > 2:
            self._complete_oldest()

    def _complete_oldest(self) -> None:
        super().submit(self.behind[0])
        self.behind = self.behind[1:]

    def finish(self) -> None:
        while self.behind:
            self._complete_oldest()
        super().finish()


def write(folder: Path, seeds: Sequence[int]) -> Path:
    folder.mkdir()
    for at, seed in enumerate(seeds):
        (folder / f"{at:03}.jpg").write_bytes(IMAGES[seed])
    return folder


@cache
def right() -> list[bytes]:
    """The vectors of the five sound images."""
    with TemporaryDirectory() as name:
        embed(write(Path(name, "each"), range(5)), Path(name, "right"), **QUICK)
        return [row[0] for _, row in sorted(content(Path(name, "right")).rows.items())]


@settings(max_examples=12)
@given(
    seeds=st.lists(st.integers(0, 5), min_size=12, max_size=20),
    bad=st.sets(st.integers(0, 4), max_size=3),
    late=st.booleans(),
)
@example(seeds=[5, 0, 1, 2, 3, 0, 1, 2], bad={0}, late=True)
def test_an_image_has_its_vector_or_is_a_failure(
    seeds: list[int], bad: set[int], late: bool
) -> None:
    """Whichever rows are copies of which, in the same shard of four or in another.

    Workers run ahead into the next shard. A shard knows nothing of the others.
    """
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder, out = write(Path(name, "in"), seeds), Path(name, "out")
        out.mkdir()
        values = JobSettings(**{**QUICK, "batch": 2, "workers": 2})
        recipe, model = values.resolved_recipe("cpu"), values.resolved_model()
        embedder = overflowing(open_embedder(recipe, model), {right()[seed] for seed in bad})
        if late:
            patch.setattr("wallclock.job.run.open_inference", Late)
        dataset = Dataset(Folder(out))
        parts = parts_of(0, len(seeds), 4)
        items = list_items(str(folder))
        job = Job(items, dataset, model, recipe, parts)
        run = Run(job, job.plan())
        with run.loader() as loader:
            run.run(loader, embedder, lambda *_: sleep(0.01))
        made, failed = dict[str, bytes](), list[tuple[str, str]]()
        for number in dataset.committed():
            ids = dataset.rows(number)["id"].to_pylist()
            made |= zip(ids, map(bytes, dataset.vectors(number)), strict=True)
            failed += [(row["id"], row["reason"]) for row in dataset.failures(number)]
    reasons = dict.fromkeys(bad, REASON) | {5: "empty file"}
    names = {f"{at:03}.jpg": seed for at, seed in enumerate(seeds)}
    assert made == {name: right()[seed] for name, seed in names.items() if seed not in reasons}
    expected = [(name, reasons[seed]) for name, seed in names.items() if seed in reasons]
    assert sorted(failed) == expected
    assert (run.tally.images, run.tally.n_failed) == (len(made), len(failed))
    before = [seeds[at // 4 * 4 : at] for at in range(len(seeds))]
    copies = [seed for seed, earlier in zip(seeds, before, strict=True) if seed in earlier]
    assert run.tally.copied == len(copies) - copies.count(5)


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 60)), max_size=40))
def test_a_job_stops_at_a_tenth_of_the_last_256(batches: list[tuple[int, int]]) -> None:
    """In whole batches: as few as have 256 images."""
    rows, last = FiniteRows("fp16"), np.empty((0, 2), int)
    for n, n_bad in batches:
        vectors = np.zeros((n, 3), np.float32)
        vectors[:n_bad, 1] = np.nan
        last = np.vstack([last, (n, min(n, n_bad))])
        while last[1:, 0].sum() >= 256:
            last = last[1:]
        n_last, failed = last.sum(axis=0)
        if n_last >= 256 and 10 * failed > n_last:
            with pytest.raises(UserError, match=f"^{failed} of the last {n_last} vectors"):
                rows.failed(vectors)
            return
        assert rows.failed(vectors) == [*range(min(n, n_bad))]


def test_a_job_whose_dtype_is_too_narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "wallclock.infer.network.open_embedder",
        lambda recipe, model, **_: overflowing(open_embedder(recipe, model)),
    )
    folder = write(tmp_path / "in", [0] * 256)
    with pytest.raises(UserError) as caught:
        embed(folder, tmp_path / "out", **{**QUICK, "deduplicate": False})
    line = "256 of the last 256 vectors are not finite in fp16; set dtype=fp32"
    assert (str(caught.value), caught.value.status) == (line, 1)


def test_a_message_fails_alone(tmp_path: Path) -> None:
    FAMILIES["dinov2"](tmp_path)
    module = Embedding(model=str(tmp_path), device="cpu")
    embedder = module._embedder
    assert embedder is not None
    images = np.random.default_rng(0).integers(
        0, 255, (3, *module._decode._loading.geometry.canvas, 3), np.uint8
    )
    right = embedder.embed(images)
    factors = np.array([[1], [np.nan], [1]], np.float32)
    module._embedder = replace(embedder, d2h=lambda result: embedder.d2h(result) * factors)
    first, second, third = module.process(images)
    np.testing.assert_allclose([first, third], right[[0, 2]], rtol=1e-5)
    assert isinstance(second, ImageError)
    assert str(second).startswith("forward: not finite in fp32")
