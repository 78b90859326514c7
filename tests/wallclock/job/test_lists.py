"""Lists as pandas, csv, pyarrow and Excel write them, and sources with every kind of damage."""

import json
import os
import socket
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import making
from tests.harness.corpora.abo.conftest import fill
from tests.running import run_python
from tests.threaded_server import FileHandler, ThreadedServer
from tests.wallclock.job.conftest import QUICK, content
from wallclock.__main__ import main
from wallclock.errors import UserError
from wallclock.job import embed
from wallclock.job.listing import list_items

WORDS = ["model=null", "recipe=pillow", "device=cpu"]


def _stream(frame: pd.DataFrame, file: Any) -> None:
    table = pa.Table.from_pandas(frame)
    with pa.ipc.new_stream(file, table.schema) as sink:
        sink.write_table(table)


#: pandas writes by the module csv, with an index.
WRITERS: dict[str, Callable[[pd.DataFrame, Any], object]] = {
    "excel.CSV": lambda frame, file: frame.to_csv(file, encoding="utf-8-sig"),
    "excel.txt": lambda frame, file: frame.to_csv(file, sep="\t", encoding="utf-16"),
    "semicolon.csv": lambda frame, file: frame.to_csv(file, sep=";", lineterminator="\r\n"),
    "arrow.tsv": lambda frame, file: pacsv.write_csv(pa.Table.from_pandas(frame), file),
    "array.json": lambda frame, file: frame.to_json(file, orient="records"),
    "lines.ndjson": lambda frame, file: frame.to_json(file, orient="records", lines=True),
    "table.parquet": lambda frame, file: frame.to_parquet(file),
    "no-extension": lambda frame, file: frame.to_parquet(file),
    "file.feather": lambda frame, file: frame.to_feather(file),
    "stream.arrow": _stream,
}
#: What no place of a file on this machine is. pandas and Arrow do not quote a lone CR.
_TEXT = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), min_size=1)
_NAMES = st.sampled_from(["path", "URL", " Uri ", "Where"])


@pytest.mark.parametrize("name", WRITERS)
@given(
    st.lists(st.tuples(_TEXT, _TEXT), min_size=1, max_size=6, unique_by=lambda row: row[0]), _NAMES
)
@example(
    [("007", "/abs/1e5"), ("2020-01-01", 'a "b", c.jpg'), ("x\ny", "\u2028\x85 ;\t.jpg ")], "URL"
)
@settings(max_examples=3)
def test_ids_and_places_are_as_written(name: str, rows: list[tuple[str, str]], column: str) -> None:
    rows = [row for row in rows if "://" not in row[1]] or [("1", "a")]
    frame = pd.DataFrame({"n": [*range(len(rows))], "ID": [row[0] for row in rows]})
    frame[column] = [row[1] for row in rows]
    with tempfile.TemporaryDirectory(suffix=os.fsdecode(b"\xff")) as folder:
        path = Path(folder, name)
        with path.open("wb") as file:
            WRITERS[name](frame, file)
        items = list_items(str(path))
    assert (items.ids.to_pylist(), items.faults) == ([row[0] for row in rows], {})
    places = [os.fsencode(os.path.join(os.path.realpath(folder), place)) for _, place in rows]
    assert items.where.to_pylist() == places
    assert [*map(str, items.carried["n"].to_pylist())] == [str(n) for n in range(len(rows))]


#: Format → a list of three good images among damaged rows, and the ids of these.
DAMAGED = {
    "txt": (
        "{}\nhtps://x/y\n{}\nhttp://[9/\nnone.jpg\n{}\n",
        ["htps://x/y", "http://[9/", "none.jpg"],
    ),
    "csv": (
        'id,path,sku\n1,{},00\n9,htps://x/y,\n10,,\n2,{},"a\nb"\n3\n3,{},1\n',
        ["9", "10", "row 5"],
    ),
    "tsv": ("id\tpath\t\n1\t{}\t\n3\n2\t{}\t\n9\thtps://x/y\t\n3\t{}\t\n", ["row 2", "9"]),
    "jsonl": (
        '{{"id": 1, "path": "{}"}}\n{{"id": 9, "path": null}}\n{{"id"\n[1]\n"x"\n{{}}\n'
        '{{"id": 2, "path": "{}", "n": 1}}\n{{"id": 10, "path": "\\ud800"}}\n'
        '{{"id": 3, "path": "{}", "n": "x"}}\n',
        ["9", "row 3", "row 4", "row 5", "row 6", "10"],
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_is_its_rows_failure(kind: str, tmp_path: Path) -> None:
    names = [str(tmp_path / f"{at}.jpg") for at in range(3)]
    for at, name in enumerate(names):
        Path(name).write_bytes(making.jpeg(seed=at))
    text, damaged = DAMAGED[kind]
    (tmp_path / f"list.{kind}").write_text(text.format(*names))
    embed(tmp_path / f"list.{kind}", tmp_path / "out", **QUICK)
    found = content(tmp_path / "out")
    assert [*found.rows] == (names if kind == "txt" else ["1", "2", "3"])
    assert [name for name, _ in found.failures] == damaged
    rows = [(name, reason) for name, reason in found.failures if name.startswith("row ")]
    assert all(reason.startswith(f"{name}: ") for name, reason in rows)


@pytest.mark.parametrize("record", ['"b.jpg', '"b"c.jpg'])
def test_a_quote_that_is_not_csvs_is_named(record: str, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(f'path\n"a\nb"\n{record}\nc.jpg\n')
    with pytest.raises(UserError, match=r"list\.csv cannot .*: the record in line 4: "):
        list_items(str(tmp_path / "list.csv"))


def test_a_row_without_an_id_has_its_places(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("id,path,,\n,a.jpg,,\n,,,\n2,b.jpg,,\n")
    items = list_items(str(tmp_path / "list.csv"))
    assert (items.ids.to_pylist(), items.carried.num_columns) == (["a.jpg", "row 2", "2"], 0)
    texts = pa.array([b"a.jpg", b"\xff.jpg", None])
    column = pa.Array.from_buffers(pa.string(), 3, texts.buffers())
    pq.write_table(pa.table({"path": column}), tmp_path / "list.parquet")
    items = list_items(str(tmp_path / "list.parquet"))
    assert items.ids.to_pylist() == ["a.jpg", r"\xff.jpg", "row 3"]


def test_json_of_several_types(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('\n[{"path": "a", "n": 1.5}, {"path": "b", "n": true}]')
    assert list_items(str(path)).carried["n"].to_pylist() == ["1.5", "true"]
    path.write_text('["a", "b"]')
    with pytest.raises(UserError, match=r"list\.json cannot .*: row 1: no JSON object"):
        list_items(str(path))


@pytest.mark.parametrize(
    ("name", "head", "filling", "what"),
    [
        ("list.txt", b"", b"x", "line"),
        ("list.csv", b"id,path\n1,", b"x", "line"),
        ("list.csv", b'id,path\n1,"', b"x", "line"),
        ("list.csv", b"path\n", b'"' + b"x" * 999 + b'\n",', "record"),
        ("list.jsonl", b'{"path": "', b"x", "line"),
    ],
)
def test_a_line_without_an_end_is_refused_and_not_held(
    name: str, head: bytes, filling: bytes, what: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(head + filling * ((1 << 25) // len(filling)))
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=rf"a list: a {what} of more than 1,048,576 characters"):
            list_items(str(tmp_path / name))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_an_array_of_json_is_one_line_and_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"path": f"{at:099}"} for at in range(10_000)]))
    assert len(list_items(str(path))) == 10_000
    monkeypatch.setattr("wallclock.job.lists._MOST_JSON", 1 << 20)
    with pytest.raises(UserError, match=r"more than 1,048,576 bytes of JSON; write CSV or Parquet"):
        list_items(str(path))


def test_a_row_that_never_answers_is_its_failure(tmp_path: Path) -> None:
    """A pipe without a writer, and a socket; by a path and by whatever URL names them."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.jpg").write_bytes(making.jpeg())
    starts = ["", "file:", "file://", "LOCAL://", "file://localhost", "file://host"]
    rows = [f"{start}{tmp_path}/pipe" for start in [*starts, "simplecache::file://"]]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        rows += ["pipe", f"file://{tmp_path}/socket"]
        (tmp_path / "list.txt").write_text("\n".join([*rows, "a.jpg"]))
        embed(tmp_path / "list.txt", tmp_path / "out", **QUICK)
    found = content(tmp_path / "out")
    assert ([*found.rows], [name for name, _ in found.failures]) == (["a.jpg"], rows)


def test_rows_that_no_byte_stands_for(tmp_path: Path) -> None:
    table = pa.table({"path": pa.nulls(1 << 30)})
    with pa.ipc.new_file(tmp_path / "list.arrow", table.schema) as sink:
        sink.write_table(table)
    with pytest.raises(UserError, match=r"list\.arrow cannot be .* rows in [\d,]+ bytes"):
        list_items(str(tmp_path / "list.arrow"))


def test_what_parquet_lacks_is_refused_before_work(tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").write_text('{"path": "a.jpg", "about": {}}')
    with pytest.raises(UserError, match=r"column about \(struct<>\) cannot be carried along"):
        embed(tmp_path / "list.jsonl", tmp_path / "out", **QUICK)


class _Store(FileHandler):
    """Has every image; `/moved` leads to a name in raw UTF-8."""

    asked: ClassVar[list[str]] = []

    def answer(self) -> None:
        self.asked.append(self.path)
        data = making.jpeg()
        headers = {
            "Content-Length": str(len(data)),
            "Location": "/é.jpg".encode().decode("latin-1"),
        }
        self.reply(302 if self.path == "/moved" else 200, headers, data)


def test_urls_are_requested_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "a b.jpg").write_bytes(making.jpeg())
    _Store.asked.clear()
    with ThreadedServer(_Store) as store:
        signed = "/a%2Fb%27c.jpg?Signature=x%2Fy%3D&Key-Pair-Id='A'"
        urls = [store.endpoint.replace("http", "HTTP") + signed, f" {store.endpoint}/moved"]
        urls.append(f"FILE://{tmp_path}/a%20b.jpg")
        (tmp_path / "list.csv").write_text("url\n" + "\n".join(urls))
        outcome = embed(tmp_path / "list.csv", tmp_path / "out", **QUICK)
    assert (outcome.counts["vectors"], outcome.counts["failures"]) == (3, 0)
    assert sorted(_Store.asked) == sorted([signed, "/moved", "/%C3%A9.jpg"])


FILES, EVERY = 200, 20  # one in twenty is damaged in each way
CUT = making.jpeg()[:-40]


def _file(at: int) -> tuple[str, bytes]:
    """The name and the bytes of a file, which may be damaged."""
    kinds = {
        0: (f"{at}.jpg", CUT),
        1: (f"{at}.jpg", b""),
        2: (f"{at}.png", b"<html>"),
        3: (f"sub/._{at}.jpg", b"\0\5\x16\7"),
        4: (f"notes-{at}.txt", b"notes"),
    }
    return kinds.get(at % EVERY, (f"sub/{at}.jpg", making.jpeg(seed=at % EVERY)))


@pytest.mark.parametrize("kind", ["folder", pytest.param("s3", marks=pytest.mark.slow)])
def test_files_add_up(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Vectors, failures and what is skipped are all files, which the last line says."""
    files, folder, out = dict(map(_file, range(FILES))), tmp_path / "images", tmp_path / "out"
    if kind == "s3":
        fill(request.getfixturevalue("s3"), "damaged", files)
    else:
        (folder / "sub").mkdir(parents=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
    src = "s3://damaged" if kind == "s3" else str(folder)
    assert main(["embed", src, str(out), *WORDS]) == 0
    failed, skipped = 3 * FILES // EVERY, 2 * FILES // EVERY
    n = FILES - failed - skipped
    printed = capsys.readouterr()
    counts = f"{n} vectors, {failed} failed, {skipped} skipped in 1 part of {out}"
    assert f"wallclock: {counts}, the reasons in {out}/_failures: " in printed.out
    assert printed.err.count(f"skipped: {skipped} files are not images: ") == 1
    about = json.loads((out / "_dataset.json").read_text(encoding="utf-8"))
    assert about["counts"]["skipped"] == skipped
    assert {*content(out).rows} == {f"sub/{at}.jpg" for at in range(FILES) if at % EVERY > 4}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("list.txt", "photos\\a.jpg\nphotos\\b.jpg\n", "; write / for the backslashes of Windows"),
        ("list.csv", "id,path\n1,\n", "the first: 1 (row 1 has no path)"),
        ("a.jpg", "no image", "a.jpg (not a JPEG"),
    ],
)
def test_a_source_that_gives_no_vector_ends_with_1(
    name: str,
    text: str,
    said: str,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also when it is complete already; what has vectors does not."""
    folder = tmp_path_factory.mktemp(
        "a"
    )  # short: a line has a bound, and the folder is in it often
    (folder / "in").mkdir()
    (folder / "in" / name).write_text(text)
    src = folder / "in" if name == "a.jpg" else folder / "in" / name
    for counts in ("; 0 vectors, ", "; complete already: 0 vectors, "):
        assert main(["embed", str(src), str(folder / "out"), *WORDS]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("wallclock: no image has a vector, the first: ")
        assert said in line
        assert counts in line


def test_no_name_is_utf8(tmp_path: Path) -> None:
    """Source and output; written, read again, and shown on a standard output of Latin-1."""
    src, out = (
        os.fsdecode(os.fsencode(tmp_path) + name) for name in (b"/in\xff\xc3\xa4", b"/out\xfd")
    )
    os.mkdir(src)
    for seed, name in enumerate((b"a\xfe.jpg", b"\xc3\xa4.jpg")):
        Path(src, os.fsdecode(name)).write_bytes(making.jpeg(seed=seed))
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    for command in (["embed", src, out, *WORDS], ["verify", out]):
        done = run_python("-m", "wallclock", *command, env=env, text=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(b"wallclock: 2 vectors")
    about = json.loads(Path(out, "_dataset.json").read_bytes())
    assert about["source"] == f"{tmp_path}/in\\xffä"
    assert sorted(content(out).rows) == ["a\\xfe.jpg", "ä.jpg"]
