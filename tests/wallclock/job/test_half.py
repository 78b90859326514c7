"""vectors=float16: what is stored, and what is refused rather than rounded away."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.wallclock.job.conftest import QUICK, Content, content
from wallclock.errors import UserError
from wallclock.job import embed, half
from wallclock.job.dataset import open_existing
from wallclock.job.shard import Shard
from wallclock.job.verify import verify

Run = Callable[..., Any]


@pytest.mark.parametrize("sink", half.SINKS)
def test_half_the_bytes(sink: str, run: Run, reference: Content, tmp_path: Path) -> None:
    run(sink=sink, vectors="float16")
    out = tmp_path / "out"
    if sink == "npy":
        stored = np.load(out / "part-00000.npy")
        assert json.loads((out / "part-00000.ids.json").read_text("utf-8"))[0] == "00.jpg"
    else:
        column = pq.read_table(out / "part-00000.parquet")["vector"].combine_chunks()
        stored = column.flatten().to_numpy().reshape(-1, 384)
    assert stored.dtype == np.float16
    dataset = open_existing(out)
    assert dataset is not None
    assert dataset.vectors(0).dtype == np.float32
    assert (dataset.vectors(0) == stored).all()
    for name, row in content(out).rows.items():
        right = np.frombuffer(reference.rows[name][0], np.float32).astype(np.float16)
        assert (np.frombuffer(row[0], np.float32) == right).all()
    about = json.loads((out / "_dataset.json").read_text(encoding="utf-8"))
    assert about["identity"]["vectors"] == "float16"
    assert about["schema"]["vector"] == "fixed_size_list<halffloat>[384]"
    assert verify(out, n=9).faults == ()


@pytest.mark.parametrize("sink", ["lmdb", "jsonl"])
def test_a_sink_of_float32_is_refused(sink: str, run: Run) -> None:
    with pytest.raises(UserError, match=f"^vectors=float16: sink={sink} stores float32; set ") as e:
        run(sink=sink, vectors="float16")
    assert "\n" not in str(e.value)


def test_another_type_is_another_job(run: Run) -> None:
    run()
    with pytest.raises(UserError, match="vectors was float32, is float16"):
        run(vectors="float16")


def test_what_is_rounded_is_not_reused_as_float32(
    run: Run, images: Path, reference: Content, tmp_path: Path
) -> None:
    run(vectors="float16")
    reuse = {**QUICK, "reuse": str(tmp_path / "out")}
    with pytest.raises(UserError, match=r"are rounded to float16; set vectors=float16, or leave"):
        embed(images, tmp_path / "new", **reuse)
    embed(images, tmp_path / "new", vectors="float16", **reuse)
    assert content(tmp_path / "new") == content(tmp_path / "out")
    embed(images, tmp_path / "whole", **QUICK)
    reuse["reuse"] = str(tmp_path / "whole")
    embed(images, tmp_path / "other", vectors="float16", **reuse)
    assert content(tmp_path / "other") == content(tmp_path / "out")


def test_overflow_names_the_image() -> None:
    ids = pa.chunked_array([["a", "b"], ["c", "d"]])
    vectors = np.full((4, 3), 65_504, np.float32)
    assert (half.as_float16(ids, vectors) == vectors).all()
    vectors[2, 1] = -65_530
    with pytest.raises(UserError, match=r"^the vector of c .* set vectors=float32 and another OUT"):
        half.as_float16(ids, vectors)
    vectors[3, 0] = np.inf
    vectors[1, 2] = 1e6
    with pytest.raises(UserError, match=r"^the vector of b "):
        half.as_float16(ids, vectors)
    vectors[1:, :] = 0
    vectors[2, 1] = -np.inf  # of the model, not of the rounding
    assert np.isinf(half.as_float16(ids, vectors)[2, 1])


def test_overflow_ends_the_job(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part with an infinity is written; pixels are scaled as a model without a norm may."""
    arrived = Shard.arrived
    monkeypatch.setattr(Shard, "arrived", lambda s, at, vectors: arrived(s, at, vectors * 1e4))
    with pytest.raises(UserError, match=r"the vector of \S+ has values that float16 cannot hold"):
        run(vectors="float16")
    assert not list((tmp_path / "out").glob("part-*"))
