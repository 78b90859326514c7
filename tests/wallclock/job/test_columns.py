"""A list's other columns, which go along with its vectors."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.wallclock.job.conftest import QUICK, Ray, content
from wallclock.errors import UserError
from wallclock.job import embed, texts
from wallclock.job.items import describe_columns
from wallclock.job.listing import list_items

pytestmark = pytest.mark.usefixtures("read_in_this_process")

Make = Callable[..., Path]
TYPES = {"label": pa.int64(), "split": pa.string(), "tags": pa.list_(pa.string())}


@pytest.fixture
def make(images: Path, tmp_path: Path) -> Make:
    """A Parquet list of the first images of the folder, with these columns beside."""

    def write(name: str = "list.parquet", **more: Any) -> Path:
        paths = sorted(str(path) for path in images.glob("*.jpg"))[:20]
        own: dict[str, Any] = {
            "split": ["train" if at % 3 else "test" for at in range(len(paths))],
            "id": [Path(path).stem for path in paths],
            "label": range(len(paths)),
            "path": paths,
            "tags": [["a", str(at)][: at % 3] or None for at in range(len(paths))],
        }
        kinds = {**TYPES, "id": pa.string(), "path": pa.string()}
        values = {**own, **more}
        table = {
            key: value if isinstance(value, pa.Array) else pa.array(value, kinds.get(key))
            for key, value in values.items()
        }
        pq.write_table(pa.table(table), tmp_path / name)
        return tmp_path / name

    return write


def check(src: Path, out: Path) -> None:
    """Every row has its own values, in the types of the list."""
    listed = {row["id"]: row for row in pq.read_table(src).to_pylist()}
    read = pa.concat_tables(pq.read_table(path) for path in sorted(out.glob("part-*.parquet")))
    for name, kind in TYPES.items():
        assert read.schema.field(name).type == kind
    assert len(read) == len(content(out).rows) == len(listed) - 1
    assert "07-cut" not in read["id"].to_pylist()
    for row in read.to_pylist():
        assert {name: row[name] for name in TYPES} == {
            name: listed[row["id"]][name] for name in TYPES
        }


def test_they_are_in_each_part(make: Make, tmp_path: Path) -> None:
    src, out = make(), tmp_path / "out"
    embed(src, out, **QUICK)
    check(src, out)
    about = json.loads((out / "_dataset.json").read_text(encoding="utf-8"))
    assert about["identity"]["carries"] == ["split", "label", "tags"]
    assert about["schema"]["label"] == "int64"
    assert pd.read_parquet(out)["label"].dtype == "int64"
    (out / "part-00001.parquet").unlink()
    embed(src, out, **QUICK)
    check(src, out)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1 << 62] * 20, pa.timestamp("us")),
        pa.array([10**9] * 20, pa.int32()).cast(pa.date32()),
        pa.array([0] * 20, pa.timestamp("us", "Mars/Phobos")),
        pa.array([["a"]] * 20, pa.list_(pa.string_view())),
    ],
)
def test_what_cannot_be_carried_is_one_line(column: Any, make: Make, tmp_path: Path) -> None:
    src = make(odd=column)
    with pytest.raises(UserError, match=r"column odd \(.*\) cannot be carried along: ") as caught:
        embed(src, tmp_path / "out", **QUICK)
    assert "\n" not in str(caught.value)


def test_views_are_carried_as_text(make: Make, tmp_path: Path) -> None:
    values = [f"a text that is longer than a view holds, {at}" for at in range(20)]
    embed(make(odd=pa.array(values, pa.string_view())), tmp_path / "out", **QUICK)
    table = pq.read_table(tmp_path / "out" / "part-00000.parquet")
    assert table["odd"].to_pylist() == [values[at] for at in table["label"].to_pylist()]


def test_of_a_csv(make: Make, tmp_path: Path) -> None:
    rows = pq.read_table(make()).to_pylist()
    with (tmp_path / "list.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "id", "price", "shop"])
        writer.writerows([row["path"], row["id"], f"00{row['label'] / 4}", "ä"] for row in rows)
    embed(tmp_path / "list.csv", tmp_path / "out", **QUICK, limit=10)
    frame = pd.read_parquet(tmp_path / "out")
    labels = {row["id"]: row["label"] for row in rows}
    assert [*frame["price"]] == [f"00{labels[name] / 4}" for name in frame["id"]]
    assert {*frame["shop"]} == {"ä"}


@pytest.mark.parametrize("name", ["vector", "sha256", "width", "Height", "version"])
def test_a_name_of_the_datasets_own_is_refused(name: str, make: Make, tmp_path: Path) -> None:
    src = make(**{name: range(20)})
    with pytest.raises(UserError, match=f"column {name} .*rename it in the list") as caught:
        embed(src, tmp_path / "out", **QUICK)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out").glob("*part*"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"label": pa.array(range(20), pa.int32())}, "column label was int64, is int32"),
        ({"more": range(20)}, "carries was"),
    ],
)
def test_other_columns_are_another_job(
    change: dict[str, Any], why: str, make: Make, tmp_path: Path
) -> None:
    embed(make(), tmp_path / "out", **QUICK)
    with pytest.raises(UserError, match=why):
        embed(make(**change), tmp_path / "out", **QUICK)


def test_other_values_are_taken_over(make: Make, tmp_path: Path) -> None:
    out = tmp_path / "out"
    embed(make(), out, **QUICK)
    before = {name: row[0] for name, row in content(out).rows.items()}
    src = make(label=[*range(18), 118, 119])
    tally = embed(src, out, **QUICK).tally
    assert tally.images == 2
    check(src, out)
    assert {name: row[0] for name, row in content(out).rows.items()} == before
    assert str(embed(src, out, **QUICK)).startswith("complete already")


def test_on_a_cluster(make: Make, tmp_path: Path, ray: Ray) -> None:
    """The list goes to each node pickled; a call embeds one shard."""
    ray(a=1)
    src, out = make(), tmp_path / "out"
    embed(src, out, **QUICK, cluster="auto")
    check(src, out)


def test_the_digest_is_of_names_types_and_values(make: Make) -> None:
    def digest(src: Path) -> Any:
        return describe_columns(list_items(str(src)))["carried_values"]

    changes: list[dict[str, Any]] = [{}, {"more": range(20)}, {"split": ["x"] * 20}]
    changes += [{"label": range(1, 21)}, {"label": pa.array(range(20), pa.int32())}]
    digests = [digest(make(f"{at}.parquet", **more)) for at, more in enumerate(changes)]
    assert len({*digests}) == len(changes)
    assert digest(make()) == digests[0]


def test_the_digest_is_of_every_row(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the rows are taken in several pieces."""
    monkeypatch.setattr(texts, "CHUNK", 6)

    def digest(at: int) -> Any:
        src = make(f"{at}.parquet", label=[1000 if row == at else row for row in range(20)])
        return describe_columns(list_items(str(src)))["carried_values"]

    rows = 0, 5, 6, 11, 12, 19, 20
    assert len({digest(at) for at in rows}) == len(rows)
