"""OUT as other tools open it: the folder itself, with nothing that they trip over."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pandas as pd
import pyarrow.dataset
import pytest

from tests.conftest import ROOT
from wallclock.job.dataset import open_existing

Run = Callable[..., Any]


@pytest.fixture
def out(run: Run, tmp_path: Path) -> Path:
    """A dataset with all that can be in one: failures, a lock."""
    run()
    folder = tmp_path / "out"
    assert {"_dataset.json", "_failures", ".lock"} <= {path.name for path in folder.iterdir()}
    return folder


def expected(out: Path) -> dict[str, Any]:
    dataset = open_existing(out)
    assert dataset is not None
    vectors: dict[str, Any] = {}
    for number in dataset.committed():
        ids = dataset.rows(number, ["id"])["id"].to_pylist()
        vectors |= dict(zip(ids, dataset.vectors(number), strict=True))
    return vectors


def check(rows: dict[str, Any], out: Path) -> None:
    right = expected(out)
    assert rows.keys() == right.keys()
    for name, vector in rows.items():
        assert (np.asarray(vector, np.float32) == right[name]).all()


def test_pandas(out: Path) -> None:
    frame = pd.read_parquet(out)
    assert [*frame.columns] == ["id", "vector", "sha256", "width", "height", "version"]
    check(dict(zip(frame["id"], frame["vector"], strict=True)), out)


def test_pyarrow(out: Path) -> None:
    table = pyarrow.dataset.dataset(out).to_table()
    assert table.schema.field("vector").type.list_size == 384
    names = table["id"].to_pylist()
    check(dict(zip(names, table["vector"].to_numpy(), strict=True)), out)


@pytest.mark.filterwarnings("ignore")  # of its own imports
def test_duckdb(out: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    parts = out / "*.parquet"
    rows = duckdb.sql(f"select id, vector::FLOAT[384] from '{parts}'").fetchall()
    check(dict(rows), out)
    first = rows[0][0]
    query = f"(select vector::FLOAT[384] from '{parts}' where id = '{first}')"
    nearest = f"array_cosine_similarity(vector::FLOAT[384], {query})"
    (name, cosine), *_ = duckdb.sql(
        f"select id, {nearest} as cosine from '{parts}' order by cosine desc, id"
    ).fetchall()
    assert (name, round(cosine, 5)) == (first, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_datasets(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    library = pytest.importorskip("datasets")
    rows = library.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
    rows = rows.with_format("numpy")
    check({row["id"]: row["vector"] for row in rows}, out)


def test_the_lines_that_convert_it(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/embed.md, "Other formats"."""
    text = (ROOT / "docs" / "embed.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```py\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(out.parent)
    (out.parent / "OUT").symlink_to(out)
    exec(lines, {"pandas": pd, "numpy": np, "lmdb": lmdb})
    right = expected(out)
    written = [json.loads(line) for line in Path("vectors.jsonl").read_text("utf-8").splitlines()]
    check({row["id"]: row["vector"] for row in written}, out)
    check(
        {row["id"]: vector for row, vector in zip(written, np.load("vectors.npy"), strict=True)},
        out,
    )
    with lmdb.open("vectors.lmdb", subdir=False, readonly=True) as db, db.begin() as view:
        for name, vector in right.items():
            assert view.get(name.encode()) == vector.tobytes()
