"""Tables: the same rows give the same bytes, and reading gives back what was written."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper import csvfile
from paper.csvfile import distinct, join_distinct, number, ok_rows, read_table, write_table
from wallclock.errors import UserError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csvfile") / "table.csv"


def test_form_of_a_value(path: Path) -> None:
    forms: dict[str, list[object]] = {
        "": [None, math.nan, np.float64("nan")],
        "yes": [True, np.bool_(True)],
        "no": [False],
        "100000000": [100_000_000],
        "7": [np.int64(7)],
        "0.333333": [1 / 3],
        "2": [2.0],
        "0.5": [np.float32(0.5)],
        "1.23457e+06": [1_234_567.0],
        "inf": [math.inf],
        "pil": ["pil"],
    }
    for cell, values in forms.items():
        for value in values:
            write_table(path, ["value", "last"], [{"value": value, "last": 1}])
            assert path.read_bytes() == f"value,last\n{cell},1\n".encode()


def test_columns_keep_the_declared_order(path: Path) -> None:
    write_table(path, ["b", "a"], [{"a": 1, "b": 2}, {"b": 4, "a": 3}])
    assert path.read_text() == "b,a\n2,1\n4,3\n"
    write_table(path, ["a", "b"], [])
    assert (csvfile.read_columns(path), read_table(path)) == (["a", "b"], [])


@given(st.lists(st.lists(TEXT, min_size=3, max_size=3), max_size=5))
def test_text_round_trips_on_one_line(path: Path, cells: list[list[str]]) -> None:
    rows = [dict(zip("abc", line, strict=True)) for line in cells]
    write_table(path, "abc", rows)
    first = path.read_bytes()
    assert first.count(b"\n") == len(rows) + 1
    assert read_table(path) == [
        {key: " ".join(cell.splitlines()) for key, cell in row.items()} for row in rows
    ]
    write_table(path, "abc", read_table(path))
    assert path.read_bytes() == first


@given(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_float_round_trips_to_six_digits(path: Path, value: float) -> None:
    write_table(path, ["value", "last"], [{"value": value, "last": 0}])
    assert number(read_table(path)[0]["value"]) == pytest.approx(value, rel=1e-5, abs=0)


BAD = [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 2}, {"a": 1, "b": [1]}]


@pytest.mark.parametrize("row", BAD)
def test_refused_row_keeps_the_old_table(path: Path, row: dict[str, object]) -> None:
    write_table(path, ["a", "b"], [{"a": 1, "b": 2}])
    with pytest.raises(ValueError, match=r"row 1|list"):
        write_table(path, ["a", "b"], [row])
    with pytest.raises(ValueError, match="twice"):
        write_table(path, ["a", "a"], [])
    assert path.read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("text", ["", "a,b\n1\n", "a,b\n1,2,3\n"])
def test_damaged_table_is_a_user_error(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(UserError, match="run its experiment again"):
        read_table(path)


def test_cells_and_rows() -> None:
    assert (number(""), number("nan"), number("1e+06")) == (None, None, 1_000_000)
    with pytest.raises(ValueError, match="pil"):
        number("pil")
    rows = [{"status": "ok"}, {"status": "unavailable"}, {"status": ""}, {"status": "ok"}]
    assert ok_rows(rows) == [{"status": "ok"}] * 2
    assert distinct(rows, "status") == ["ok", "unavailable"]
    assert join_distinct(rows, "status") == "ok / unavailable"
    assert join_distinct(rows, "status", {"ok": "X", "unavailable": "Y"}) == "X / Y"
