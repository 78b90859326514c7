"""Tars and tables as sources: the vectors that files give, by the loader's ids, from any start."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq
import pytest

from tests import making
from tests.harness.corpora.abo.conftest import fill
from tests.wallclock.job.conftest import QUICK, content
from wallclock import open_images
from wallclock.errors import ImageError, SourceError, UserError
from wallclock.job import embed, listing, records
from wallclock.job.listing import list_items
from wallclock.job.stores.s3 import at
from wallclock.job.verify import verify
from wallclock.loader import shards
from wallclock.recipe import Limits

#: By id the bytes of images: one is damaged, two are equal.
IMAGES = {f"{at:02}": making.jpeg(64, 48, at) for at in range(30)}
IMAGES |= {"07": making.jpeg(64, 48)[:-40], "09": b"", "21": IMAGES["05"]}
BAD = ["07", "09"]


def write_tars(mode: str, folder: Path, n: int = 3) -> str:
    """Tars of ten images each, with a label, a text and a JSON object beside them."""
    ending = ".tar.gz" if mode == "w:gz" else ".tar"
    for number in range(n):
        beside = {"cls": b"%d" % number, "json": b'{"a": "\\u00e9"}', "npy": bytes(99)}
        members = list[tuple[str, bytes]]()
        for name, data in [*IMAGES.items()][number * 10 :][:10]:
            contents = {"jpg": data, "txt": name.encode(), **beside}
            members += [(f"{name}.{end}", content) for end, content in contents.items()]
        (folder / f"s-{number}{ending}").write_bytes(making.tar(members, mode))
    return str(folder / f"s-{{0..{n - 1}}}{ending}")


def table_of(is_struct: bool = False) -> Any:
    images: list[Any] = [*IMAGES.values()]
    if is_struct:
        images = [{"bytes": data, "path": f"{name}.jpg"} for name, data in IMAGES.items()]
    label = [at // 10 for at in range(len(images))]
    return pa.table({"Image": images, "id": [*IMAGES], "label": label, "txt": [*IMAGES]})


def write_arrow_stream(folder: Path) -> str:
    """As datasets writes them."""
    table = table_of(is_struct=True)
    with pa.ipc.new_stream(folder / "t.arrow", table.schema) as writer:
        writer.write_table(table, 8)
    return str(folder / "t.arrow")


def write_feather(folder: Path) -> str:
    pyarrow.feather.write_feather(table_of(), str(folder / "t.feather"), chunksize=8)
    return str(folder / "t.feather")


def write_parquets(folder: Path) -> str:
    """In two files, of row groups that end where no part does."""
    table = table_of(is_struct=True)
    for number, rows in enumerate((table[:13], table[13:])):
        pq.write_table(rows, folder / f"t-{number}.parquet", row_group_size=5)
    return str(folder / "t-{0..1}.parquet")


SOURCES: dict[str, Callable[[Path], str]] = {
    "tars": lambda folder: write_tars("w", folder),
    "packed": lambda folder: write_tars("w:gz", folder),
    "parquets": write_parquets,
    "feather": write_feather,
    "stream": write_arrow_stream,
}
SETTINGS: dict[str, Any] = {**QUICK, "batch": 4, "shard": 8}


@pytest.fixture(params=SOURCES)
def src(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return SOURCES[request.param](tmp_path)


def vectors(out: Path) -> dict[str, Any]:
    """By id vector, hash and size; what fails; the version follows the file."""
    found = content(out)
    rows = {name: row[:1] + row[2:5] for name, row in found.rows.items()}
    return rows | {name: None for name, _ in found.failures}


def test_they_give_what_files_give(src: str, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, data in IMAGES.items():
        (folder / f"{name}.jpg").write_bytes(data)
    embed(folder, tmp_path / "files", **SETTINGS)
    files = {name.removesuffix(".jpg"): row for name, row in vectors(tmp_path / "files").items()}
    out = tmp_path / "out"
    outcome = embed(src, out, **SETTINGS)
    assert vectors(out) == files
    assert not outcome.unreached
    assert [name for name, row in files.items() if row is None] == BAD
    rows = [
        row for part in sorted(out.glob("*.parquet")) for row in pq.read_table(part).to_pylist()
    ]
    assert [row["label"] for row in rows] == [int(row["id"]) // 10 for row in rows]
    assert all(row["txt"] == row["id"] for row in rows)
    assert all(json.loads(row.get("json", '{"a": "é"}')) == {"a": "é"} for row in rows)
    verdict = verify(out, n=30)
    assert (verdict.faults, verdict.compared) == ((), 28)
    with open_images(src, 8, 8) as batches:
        assert [name for batch in batches for name in batch.ids] == [row["id"] for row in rows]


def test_a_rerun_reads_what_is_missing(src: str, tmp_path: Path) -> None:
    out, lost = tmp_path / "out", (0, 2, 3)
    embed(src, out, **SETTINGS)
    before = {path: path.read_bytes() for path in out.glob("part-*")}
    assert "complete already" in str(embed(src, out, **SETTINGS))
    for number in lost:
        (out / f"part-{number:05}.parquet").unlink()
    outcome = embed(src, out, **SETTINGS)
    assert outcome.tally.images + outcome.tally.n_failed <= 8 * len(lost)
    assert {path: path.read_bytes() for path in out.glob("part-*")} == before


@pytest.mark.parametrize("src", ["packed", "parquets"], indirect=True)
def test_a_shard_that_changes_is_another_list(src: str, tmp_path: Path) -> None:
    before = list_items(src)
    path = max(path for path in tmp_path.iterdir() if path.is_file())
    os.utime(path, ns=(1, 1))
    after = list_items(src)
    changed = pc.not_equal(before.versions, after.versions).to_pylist()
    assert sum(changed) == {"s": 10, "t": 17 if "{" in src else 30}[path.name[0]]


@pytest.mark.parametrize("src", ["packed", "parquets"], indirect=True)
def test_a_limit_is_of_all_shards(src: str, tmp_path: Path) -> None:
    embed(src, tmp_path / "out", limit=14, **SETTINGS)
    assert {*vectors(tmp_path / "out")} == {*[*IMAGES][:14]}
    assert verify(tmp_path / "out", n=30).compared == 12


WHOLE = making.tar([(f"{name}.jpg", data) for name, data in IMAGES.items() if name not in BAD])


def test_what_is_behind_the_damage_is_a_failure(tmp_path: Path) -> None:
    names = [name for name in IMAGES if name not in BAD]
    (tmp_path / "s-0.tar").write_bytes(WHOLE[: len(WHOLE) // 2])
    (tmp_path / "s-1.tar").write_bytes(making.tar([("last.jpg", IMAGES["00"])]))
    outcome = embed(tmp_path / "s-{0..1}.tar", tmp_path / "out", **SETTINGS)
    found = content(tmp_path / "out")
    ((name, reason),) = found.failures
    n = len(found.rows) - 1
    assert [*found.rows] == [*names[:n], "last"]
    assert n > 5
    assert name == str(tmp_path / "s-0.tar")
    assert f"it ends early, behind {names[n - 1]}.jpg; is it a whole tar?" in reason
    assert outcome.counts["failures"] == 1
    (tmp_path / "s-1.tar").write_bytes(b"junk" * 999)
    with pytest.raises(UserError, match=r"no image has a vector.* is it a whole tar"):
        embed(tmp_path / "s-1.tar", tmp_path / "junk", **SETTINGS)


@pytest.mark.parametrize("kind", ["tars", "packed", "parquets"])
def test_a_shard_that_was_cut_since_fails(kind: str, tmp_path: Path) -> None:
    """Of images that are not there any more, each is a failure with a reason."""
    items = list_items(SOURCES[kind](tmp_path))
    path = next(path for path in sorted(tmp_path.iterdir()) if path.name[2] == "1")
    os.truncate(path, path.stat().st_size // 2)
    read: list[Any] = []
    for source in items.read(range(len(items))):
        read.append(source.where)
        if callable(source.where):
            try:
                read[-1] = source.where()
            except ImageError as error:
                read[-1] = error.reason
    n = {"parquets": 13}.get(kind, 10)
    assert read[:n] == [*IMAGES.values()][:n]
    failed = [reason for reason in read if isinstance(reason, str)]
    assert len(failed) > 2
    assert all(path.name in reason for reason in failed)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_dataset_grows_by_shards(mode: str, tmp_path: Path) -> None:
    """Of others nothing is read again; what a cut one does not list any more is not gone."""
    src, out = write_tars(mode, tmp_path), tmp_path / "out"
    embed(src.replace("..2", "..1"), out, **SETTINGS)
    before = {path: path.read_bytes() for path in out.glob("part-*")}
    assert embed(src, out, **SETTINGS).tally.images == 10
    assert {path: path.read_bytes() for path in before} == before
    embed(src, tmp_path / "whole", **SETTINGS)
    assert vectors(out) == vectors(tmp_path / "whole")
    (last,) = tmp_path.glob("s-2*")
    os.utime(last, ns=(1, 1))
    assert embed(src, out, **SETTINGS).tally.images == 10
    os.truncate(last, last.stat().st_size // 2)
    assert embed(src, out, **SETTINGS).counts["gone"] == 0
    with pytest.raises(UserError, match="what is gone cannot be told"):
        embed(src, out, prune=True, **SETTINGS)
    assert vectors(out).keys() > vectors(tmp_path / "whole").keys()
    assert verify(out, n=30).faults == ()


def test_ids_that_shards_share_have_their_names(tmp_path: Path) -> None:
    for number in range(2):
        members = [("a.jpg", IMAGES[f"0{number}"]), (f"{number}.jpg", IMAGES["03"])]
        (tmp_path / f"s-{number}.tar").write_bytes(making.tar(members))
    items = list_items(str(tmp_path / "s-{0..1}.tar"))
    assert items.ids.to_pylist() == ["s-0.tar/a", "0", "s-1.tar/a", "1"]
    (tmp_path / "s-0.tar").write_bytes(making.tar([("a.jpg", b""), ("a.jpg", b"")]))
    with pytest.raises(SourceError, match=r"has the id 's-0\.tar/a' 2 times"):
        list_items(str(tmp_path / "s-0.tar"))


def test_a_table_without_ids_counts_its_rows(tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(pa.table({"jpg": [IMAGES["00"], IMAGES["01"]]}), tmp_path / f"{number}.pq")
    src = str(tmp_path / "{0..1}.pq")
    with open_images(src, 8, 8) as batches:
        assert next(batches).ids == list_items(src).ids.to_pylist() == [*"0123"]


def test_labels_of_several_kinds_are_texts(tmp_path: Path) -> None:
    for number, label in enumerate((b"7", b"cat")):
        members = [(f"{number}.jpg", IMAGES["00"]), (f"{number}.cls", label)]
        (tmp_path / f"{number}.tar").write_bytes(making.tar(members))
    items = list_items(str(tmp_path / "{0..1}.tar"))
    assert items.carried["label"].to_pylist() == ["7", "cat"]


def test_what_is_no_shard_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(WHOLE)
    pq.write_table(pa.table({"path": ["a.jpg"]}), tmp_path / "0.parquet")
    for name, words in {
        "{0..1}.tar": r"1\.tar: No such file",
        "{0..1}.parquet": r"0\.parquet has no column with the bytes of images",
        "none.parquet": "does not exist",
    }.items():
        with pytest.raises(SourceError, match=words):
            list_items(str(tmp_path / name))
    with pytest.raises(UserError, match="processes=2: tables and packed tars need processes=1"):
        embed(write_feather(tmp_path), tmp_path / "out", processes=2, **SETTINGS)


@pytest.fixture
def endpoint(s3: str, tmp_path: Path) -> str:
    """A server of S3 and of HTTP, with the bucket `tars` of three tars and two tables."""
    write_tars("w", tmp_path)
    write_parquets(tmp_path)
    fill(s3, "tars", {path.name: path.read_bytes() for path in tmp_path.glob("?-*")})
    return s3


@pytest.mark.parametrize("names", ["s-{0..2}.tar", "t-{0..1}.parquet"])
def test_shards_behind_urls(
    names: str, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once listed, they are not listed again."""
    embed(tmp_path / names, tmp_path / "local", **SETTINGS)
    for base in ("s3://tars", f"{endpoint}/tars"):
        out = tmp_path / base[:2]
        embed(f"{base}/{names}", out, **SETTINGS)
        with monkeypatch.context() as patch:
            patch.delattr(listing, "_list_shard")
            assert not embed(f"{base}/{names}", out, **SETTINGS).tally.wall_s
            assert verify(out, n=30).compared == 28
        assert vectors(out) == vectors(tmp_path / "local")
        assert {row[5] != "" for row in content(out).rows.values()} == {True}


def test_what_is_kept_of_shards_is_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where one has changed, or what is kept; a shard more, and other limits are others."""
    src, out = write_tars("w:gz", tmp_path), tmp_path / "out"
    changed = tmp_path / "s-1.tar.gz"
    os.utime(changed, (2, 2))
    embed(src, out, **SETTINGS)
    fresh, store = list_items(src), at(out)
    with monkeypatch.context() as patch:
        patch.delattr(listing, "_list_shard")
        again = list_items(src, out=store)
        columns = ("ids", "where", "versions", "faults", "others")
        assert all(getattr(again, name) == getattr(fresh, name) for name in columns)
        assert (again.carried, again.is_whole) == (fresh.carried, True)
        kept = store.read("_listing")
        for change in range(4):
            store.write("_listing", kept[:-1] if change == 0 else kept)
            os.utime(changed, (1, 1) if change == 1 else (2, 2))
            name = src.replace("2}", "1}") if change == 2 else src
            limits = Limits(max_bytes=99) if change == 3 else None
            with pytest.raises(NameError, match="_list_shard"):
                list_items(name, None, limits, store)


def test_a_tar_that_is_away_is_read_again(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its server did not give has not failed."""
    src, out = f"{endpoint}/tars/s-{{0..2}}.tar", tmp_path / "out"
    with monkeypatch.context() as patch:
        real = shards.read_tar

        def read_tar(name: str, *arguments: Any, **options: Any) -> Iterator[Any]:
            if "lists" not in options and "s-1" in name:
                raise UserError(f"{name}: HTTP 503") from OSError("HTTP 503")
            yield from real(name, *arguments, **options)

        patch.setattr(records, "read_tar", read_tar)
        outcome = embed(src, out, **SETTINGS)
    assert outcome.unreached == 10
    assert embed(src, out, **SETTINGS).unreached == 0
    assert verify(out, n=30).faults == ()
    assert len(content(out).rows) == 28
