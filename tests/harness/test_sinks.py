"""Every sink: ids and vectors come back exactly, however they were cut into batches."""

import pkgutil
import tempfile
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import sinks, spec

Vectors = npt.NDArray[np.float32]
NAMES = list(sinks.SINKS)
IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def write(name: str, folder: Path, batches: list[tuple[list[str], Vectors]], dim: int) -> Path:
    sink = sinks.make(name, folder, dim)
    for ids, vectors in batches:
        sink.write(ids, vectors)
    sink.close()
    return sink.path


def bits(vectors: Vectors) -> npt.NDArray[np.uint32]:
    """Compared as bits: NaN, -0.0 and denormal numbers must survive too."""
    return np.ascontiguousarray(vectors).view(np.uint32)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(
    batches=st.lists(st.lists(IDS, min_size=1, max_size=9), min_size=1, max_size=6),
    dim=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_round_trip(name: str, batches: list[list[str]], dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    written = [
        (ids, rng.integers(0, 2**32, (len(ids), dim), dtype=np.uint32).view(np.float32))
        for ids in batches
    ]
    if name == "jsonl":  # JSON has neither NaN nor infinity
        written = [(ids, np.nan_to_num(rows)) for ids, rows in written]
    with tempfile.TemporaryDirectory() as folder:
        ids, vectors = sinks.read(write(name, Path(folder), written, dim))
    assert ids == [identity for batch in batches for identity in batch]
    assert vectors.dtype == np.float32
    expected = np.concatenate([batch for _, batch in written])
    np.testing.assert_array_equal(bits(vectors), bits(expected))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", [[4096, 4096, 1], [1] * 5, [10_000], [4095, 2, 4095]])
def test_batches_across_row_groups(name: str, sizes: list[int], tmp_path: Path) -> None:
    everything = np.arange(sum(sizes) * 3, dtype=np.float32).reshape(-1, 3)
    ends = np.cumsum(sizes)
    batches = [
        ([f"{i}" for i in range(end - size, end)], everything[end - size : end])
        for size, end in zip(sizes, ends, strict=True)
    ]
    ids, vectors = sinks.read(write(name, tmp_path, batches, 3))
    assert ids == [f"{i}" for i in range(sum(sizes))]
    np.testing.assert_array_equal(vectors, everything)


@pytest.mark.parametrize("name", NAMES)
def test_caller_may_reuse_its_array(name: str, tmp_path: Path) -> None:
    """The sink keeps no reference to it: the mock model's vectors are a view of its images."""
    sink = sinks.make(name, tmp_path, 3)
    batch = np.ones((2, 100), np.float32)
    reference = weakref.ref(batch)
    sink.write(["a", "b"], batch[:, :3])
    batch[:] = 7  # and a view is not contiguous
    del batch
    assert reference() is None
    sink.close()
    np.testing.assert_array_equal(sinks.read(sink.path)[1], np.ones((2, 3)))


@pytest.mark.parametrize("name", NAMES)
def test_empty_file_and_ids_longer_than_any_key(name: str, tmp_path: Path) -> None:
    ids, vectors = sinks.read(write(name, tmp_path, [], 5))
    assert (len(ids), len(vectors), vectors.dtype.name) == (0, 0, "float32")
    long = ["x" * 5000 + str(i) for i in range(3)]
    (tmp_path / "long").mkdir()
    path = write(name, tmp_path / "long", [(long, np.ones((3, 2), np.float32))], 2)
    assert sinks.read(path)[0] == long


def test_other_readers(tmp_path: Path) -> None:
    vectors = np.ones((2, 3), np.float32)
    table = pq.read_table(write("parquet", tmp_path, [(["a", "b"], vectors)], 3))
    assert table.column_names == ["id", "vector"]
    assert table.column("vector").to_pylist() == vectors.tolist()
    loaded = np.load(write("npy", tmp_path, [(["a", "b"], vectors)], 3), allow_pickle=False)
    np.testing.assert_array_equal(loaded, vectors)


@pytest.mark.parametrize("kind", ["list_", "large_list"])
def test_parquet_of_other_writers(kind: str, tmp_path: Path) -> None:
    """Lists that all have the same length, as pandas writes them."""
    vectors, path = [[1.5, 2.5], [3.5, 4.5]], tmp_path / "saved.parquet"
    for rows, wrong in (
        (vectors, ""),
        ([*vectors, [1.0]], "lengths"),
        ([*vectors, None], "length"),
    ):
        column = pa.array(rows, getattr(pa, kind)(pa.float64()))
        pq.write_table(pa.table({"id": [*"abc"][: len(rows)], "vector": column}), path)
        if wrong:
            with pytest.raises(ValueError, match=wrong):
                sinks.read(path)
        else:
            ids, read = sinks.read(path)
            assert (ids, read.dtype.name, read.tolist()) == (["a", "b"], "float32", vectors)


def test_what_json_cannot_hold(tmp_path: Path) -> None:
    rows = np.array([[np.nan, np.inf], [1e-45, -0.0]], np.float32)
    path = write("jsonl", tmp_path, [(["a", "ü"], rows)], 2)
    assert (
        path.read_text("utf-8")
        == '{"id":"a","vector":[null,null]}\n{"id":"ü","vector":[1e-45,-0.0]}\n'
    )
    np.testing.assert_array_equal(bits(sinks.read(path)[1][1:]), bits(rows[1:]))
    assert np.isnan(sinks.read(path)[1][0]).all()


def test_every_module_is_a_sink() -> None:
    modules = {module.name for module in pkgutil.iter_modules(sinks.__path__)}
    assert modules - {"sink"} == set(spec.SINKS), "add its name to spec.SINKS"
