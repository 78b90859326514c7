"""Passwords and signatures of URLs: they open the images, and are in nothing that a job writes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import making
from tests.threaded_server import FileHandler, ThreadedServer
from tests.wallclock.job.conftest import QUICK, World, content
from wallclock.__main__ import main
from wallclock.errors import SourceError
from wallclock.job import embed
from wallclock.job.listing import list_items
from wallclock.job.verify import verify

N = 6


class Store(FileHandler):
    """Images, and a list of them, for whoever has today's signature."""

    day = 1

    def answer(self) -> None:
        name, _, query = self.path.partition("?")
        status, body = 200, making.jpeg(64, 48, sum(map(ord, name)))
        if f"X-Amz-Signature=S3CRET{self.day}" not in query:
            status, body = 403, b""
        elif name == "/list.txt":
            body = "".join(f"{line}\n" for line in lines("", self.day)).encode()
        elif name == "/3.jpg":
            body = b"no image"
        self.reply(status, {"Content-Length": str(len(body))}, body)


def signed(url: str, day: int) -> str:
    return f"{url}?X-Amz-Date={day}&w=9&X-Amz-Signature=S3CRET{day}"


def lines(endpoint: str, day: int) -> list[str]:
    root = endpoint.replace("http://", "http://user:S3CRET@")
    return [signed(f"{root}/{at}.jpg".lstrip("/"), day) for at in range(N)]


@pytest.fixture
def store() -> Iterator[ThreadedServer]:
    Store.day = 1
    with ThreadedServer(Store) as server:
        yield server


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_signed_anew_they_are_the_same_images(
    store: ThreadedServer, world: World, tmp_path: Path
) -> None:
    """Unreached ones are taken up by their new URLs; a complete job is complete."""
    src, out = tmp_path / "list.csv", tmp_path / "out"

    def run(day: int) -> Any:
        Store.day = day
        rows = (f"{url},{at},from {url}\n" for at, url in enumerate(lines(store.endpoint, day)))
        src.write_text("url,number,note\n" + "".join(rows))
        return embed(src, out, **{**QUICK, "shard": 4})

    ids = [f"{store.endpoint}/{at}.jpg?w=9" for at in range(N)]
    world.change(ids[2])
    outcome = run(1)
    assert outcome.unreached == 1
    assert "S3CRET" not in str(outcome)
    world.change()
    outcome = run(2)
    assert (outcome.unreached, outcome.tally.images) == (0, 1)
    assert str(run(3)).startswith("complete already")
    made = content(out)
    assert {*made.rows} == {*ids} - {ids[3]}
    assert [name for name, _ in made.failures] == [ids[3]]
    table = pa.concat_tables(pq.read_table(path) for path in sorted(out.glob("part-*")))
    assert table["note"].to_pylist() == [f"from {name}" for name in table["id"].to_pylist()]
    assert table["number"].to_pylist()[:2] == ["0", "1"]
    assert b"S3CRET" not in everything_in(out)
    assert not verify(out).faults


def test_a_signed_list(store: ThreadedServer, tmp_path: Path, capfd: Any) -> None:
    """`verify` takes SRC from who calls it, as OUT has not all of it."""
    src, out = signed(f"{store.endpoint}/list.txt", 1), tmp_path / "out"
    src = src.replace("http://", "http://user:S3CRET@")
    settings = [f"{name}={value}" for name, value in QUICK.items()]
    assert main(["embed", src, str(out), *settings]) == 0
    assert (
        json.loads((out / "_dataset.json").read_text())["source"]
        == f"{store.endpoint}/list.txt?w=9"
    )
    assert main(["verify", str(out)]) == 1
    said = capfd.readouterr()
    assert "give SRC, too: wallclock verify OUT SRC" in said.err
    assert main(["verify", str(out), src, "n=3"]) == 0
    Store.day = 2
    assert main(["verify", str(out), src]) == 1
    said = "".join(capfd.readouterr())
    assert "3 vectors embedded again" in said
    assert "HTTP 403" in said
    assert "S3CRET" not in said
    assert b"S3CRET" not in everything_in(out)


def test_ids_that_would_become_one(tmp_path: Path) -> None:
    """They keep a digest; two that were one are refused, as ever."""
    src = tmp_path / "list.txt"
    urls = [
        "http://h/a.jpg",
        "http://h/a.jpg?sig=1",
        "http://h/a.jpg?sig=2",
        "http://h/b.jpg?sig=1",
    ]
    src.write_text("\n".join(urls))
    ids = list_items(str(src)).ids.to_pylist()
    assert (ids[0], ids[3]) == ("http://h/a.jpg", "http://h/b.jpg")
    assert len({*ids}) == 4
    assert all(name.startswith("http://h/a.jpg#") for name in ids[1:3])
    assert list_items(str(src)).ids.to_pylist() == ids
    src.write_text("\n".join([*urls, urls[1]]))
    with pytest.raises(SourceError, match=r"has the id 'http://h/a\.jpg' 2 times"):
        list_items(str(src))


@pytest.mark.parametrize(
    ("column", "kept"),
    [
        (pa.array(["http://u:S3CRET@h/", None]), ["http://h/", None]),
        (pa.array(["http://u:S3CRET@h/", "b"]).dictionary_encode(), ["http://h/", "b"]),
        (pa.array([["?sig=S3CRET", "b"], None]), [["", "b"], None]),
        (pa.array([{"a": "?sig=S3CRET"}, {"a": None}]), [{"a": ""}, {"a": None}]),
        (
            pa.array([[("k", "?sig=S3CRET")], []], pa.map_(pa.string(), pa.string())),
            [[("k", "")], []],
        ),
        (pa.array([b"http://u:S3CRET@h", b"\xff?sig=1"]), [b"http://h", b"\xff?sig=1"]),
        (pa.array([1.5, float("inf")]), [1.5, float("inf")]),
    ],
)
def test_columns_that_are_carried_along(column: Any, kept: list[Any], tmp_path: Path) -> None:
    field = pa.field("other", column.type, metadata={"from": "http://u:S3CRET@h/"})
    schema = pa.schema([("path", pa.string()), field])
    pq.write_table(pa.table([["a.jpg", "b.jpg"], column], schema=schema), tmp_path / "list.parquet")
    carried = list_items(str(tmp_path / "list.parquet")).carried
    assert b"S3CRET" not in carried.schema.serialize().to_pybytes()
    assert carried["other"].to_pylist() == kept
    assert carried.schema.field("other").type == column.type


def test_a_path_is_no_url(world: World, tmp_path: Path) -> None:
    """Whatever it is called, it is opened, listed and found again under its own name."""
    folder = tmp_path / "x?token=1"
    names = ["a?sig=1.jpg", "a?sig=2.jpg", "b&token=1.jpg", "c@home/a=b?c.jpg", "d%3Ftoken%3D1.jpg"]
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(making.jpeg(64, 48, number))
    embed(folder, tmp_path / "out", **QUICK)
    assert sorted(content(tmp_path / "out").rows) == names
    assert not verify(tmp_path / "out").faults
    texts = [f"{folder.name}/{names[0]}", f"file://{folder}/{names[1]}", f"{folder}/{names[2]}"]
    (tmp_path / "list.txt").write_text("\n".join(texts))
    assert list_items(str(tmp_path / "list.txt")).ids.to_pylist() == texts
    (tmp_path / "list.csv").write_text(f"id,path\n?sig=S3CRET,{texts[0]}\n")
    assert list_items(str(tmp_path / "list.csv")).ids.to_pylist() == [""]
