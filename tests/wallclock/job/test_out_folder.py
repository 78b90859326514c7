"""What a job writes into a folder: by the umask, through no link, and as other tools open it."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pandas as pd
import pyarrow.dataset
import pytest
from rich.console import Console

from tests.conftest import ROOT
from tests.wallclock.job.conftest import QUICK, opened
from wallclock.errors import UserError
from wallclock.job import embed, identity
from wallclock.job.verify import verify

Run = Callable[..., Any]
#: All that a dataset has, unreached images apart.
NAMES = (
    *("_dataset.json", ".huggingface.yaml", ".lock", ".publishing", "part-00000.parquet"),
    *("_checksums", "_failures", "_checksums/part-00000.json", "_failures/part-00000.jsonl"),
)


@pytest.mark.parametrize("umask", [0o077, 0o002])
def test_the_umask(umask: int, run: Run, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        run()
    finally:
        os.umask(before)
    paths = [tmp_path / "out", *(tmp_path / "out").rglob("*")]
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in paths}
    assert modes == {(True, 0o777 & ~umask), (False, 0o666 & ~umask)}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *((name, "link") for name in NAMES),
        *(("_unreached", "link"), ("part-00009.parquet", "dangling link"), (".lock", "pipe")),
    ],
)
def test_no_link_is_followed(name: str, what: str, run: Run, out: Path, tmp_path: Path) -> None:
    """Neither by a job nor by its check: each names it, and what it leads to stays as it is."""
    elsewhere, original = tmp_path / "elsewhere", out / name
    if original.exists():
        shutil.move(original, elsewhere)
    elif what == "link":
        elsewhere.mkdir()
        (elsewhere / "part-00007.jsonl").write_text("kept")
    if what == "dangling link":
        shutil.rmtree(elsewhere, ignore_errors=True)
        elsewhere.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(original)
    else:
        original.symlink_to(elsewhere)
    before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}
    kind = "no regular file" if what == "pipe" else "a symbolic link"
    with pytest.raises(UserError, match=rf"out/{name} is {kind}, which no job opens; remove it$"):
        run()
    if name in NAMES[4:] or name == "_dataset.json":
        with pytest.raises(UserError, match=f"out/{name} is {kind}"):
            verify(out)
    assert {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")} == before


def test_a_job_goes_on_with_other_versions(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line says so, and the dataset knows all that made it; what changes no vector is silent."""
    out = tmp_path / "out"

    def run(**changed: str) -> str:
        with monkeypatch.context() as patch, (tmp_path / "said").open("w+") as said:
            found = identity.versions() | changed
            patch.setattr(identity, "versions", lambda: found)
            embed(images, out, console=Console(file=said, width=400), **QUICK)
            said.seek(0)
            return "".join(line for line in said if "this run has" in line)

    now = identity.versions()
    assert {"torch", "simplejpeg", "pillow", "libjpeg-turbo in simplejpeg"} <= {*now}
    assert all(number[0].isdecimal() for number in now.values())
    assert not run(torch="1.0", pyarrow="1.0")
    (out / "part-00000.parquet").unlink()
    assert f"out has vectors of torch 1.0; this run has torch {now['torch']}: " in run()
    (out / "part-00001.parquet").unlink()
    assert not run(), "it has been said"
    assert not run(pillow="1.0"), "it is complete"
    about = json.loads((out / "_dataset.json").read_text())
    assert about["versions"] == now
    assert [earlier["torch"] for earlier in about["earlier_versions"]] == ["1.0"]


def expected(out: Path) -> dict[str, Any]:
    dataset = opened(out)
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
