"""Two regenerated folders: equal where they must be, close where they may vary."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import serial
from paper.claims import select
from paper.csvfile import read_table
from paper.diff import Difference, compare
from tests.fixture_run import fixture_tables
from tests.paper.tables import copy_tables, edit
from wallclock.errors import UserError

SMALL = serial.CSVS["small_256"]
Folders = Callable[[str, object], tuple[Path, Path]]


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Two folders with one serial table each; in the second, one cell of PIL's row is changed."""

    def make(column: str, value: object) -> tuple[Path, Path]:
        a, b = (copy_tables(tmp_path / name, SMALL) for name in "ab")
        edit(b / SMALL, "decoder=pil", **{column: value})
        return a, b

    return make


CONDITIONS = {
    "decoder": "opencv",
    "status": "failed",
    "n_images": "9999",
    "image_set": "original",
    "origin": "extrapolated",
    "gate": "failed",
    "n_failed": "1",
    "median_kb": "7.5",
    "device": "NVIDIA L4",
    "repeats": "3",
}


@pytest.mark.parametrize(("column", "value"), CONDITIONS.items())
def test_conditions_must_be_equal(folders: Folders, column: str, value: str) -> None:
    a, b = folders(column, value)
    # Verdicts only restate other tables.
    (a / "claims.csv").write_text("id,reason\nx,+1 %\n")
    (difference,) = compare(a, b, tolerance=10.0)
    assert (difference.csv, difference.column, difference.b) == (SMALL, column, value)
    assert difference.row.startswith("1 ")


@pytest.mark.parametrize(
    "column",
    ["wall_s", "wall_s_min", "wall_s_max", "img_per_s", "seconds_per_100k", "forward_share"],
)
def test_times_may_vary_within_tolerance(folders: Folders, column: str) -> None:
    row = select(read_table(fixture_tables() / SMALL), "decoder=pil")
    assert row is not None
    value = float(row[column])
    assert compare(*folders(column, value * 1.09), tolerance=0.1) == []
    for changed in (value * 1.2, ""):
        differences = compare(*folders(column, changed), tolerance=0.1)
        assert [difference.column for difference in differences] == [column]


def test_a_hundredth_of_wall_time_is_noise(folders: Folders) -> None:
    assert compare(*folders("d2h_s", 0.03), tolerance=0.1) == []
    assert compare(*folders("d2h_share", 0.009), tolerance=0.1) == []
    assert len(compare(*folders("d2h_s", 0.05), tolerance=0.1)) == 1
    assert len(compare(*folders("d2h_share", 0.02), tolerance=0.1)) == 1
    # A rate is no part of the wall time, though its name ends like one.
    assert len(compare(*folders("img_per_s", 13.5), tolerance=0.001)) == 1


def test_computed_numbers_vary_by_rounding(tmp_path: Path) -> None:
    for name, cosine in (("a", "0.99991"), ("b", "0.99992"), ("c", "0.98")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.csv").write_text(f"recipe,cosine\nx,{cosine}\n")
    assert compare(tmp_path / "a", tmp_path / "b", tolerance=0.5) == []
    assert len(compare(tmp_path / "a", tmp_path / "c", tolerance=0.5)) == 1


@given(
    st.sampled_from(["mean_ms", "img_per_s", "ns_per_call", "ratio_to_x", "size_mib", "decoder"]),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 1),
)
def test_comparing_is_symmetric(
    tmp_path_factory: pytest.TempPathFactory, column: str, x: float, y: float, tolerance: float
) -> None:
    folder = tmp_path_factory.mktemp("pair", numbered=True)
    for name, value in (("a", x), ("b", y)):
        (folder / name).mkdir()
        (folder / name / "t.csv").write_text(f"{column},status\n{value!r},ok\n")
    there = compare(folder / "a", folder / "b", tolerance)
    back = compare(folder / "b", folder / "a", tolerance)
    assert len(there) == len(back)
    is_beyond = column == "decoder" or abs(x - y) > tolerance * max(x, y)
    assert len(there) == (1 if x != y and is_beyond else 0)
    assert compare(folder / "a", folder / "a", tolerance) == []


def test_tables_columns_and_rows_must_match(tmp_path: Path) -> None:
    def write(name: str, **tables: str) -> Path:
        (tmp_path / name).mkdir()
        for table, text in tables.items():
            (tmp_path / name / f"{table}.csv").write_text(text)
        return tmp_path / name

    a = write("a", t="x,y\n1,2\n", only_a="x\n")
    b = write("b", t="x,z\n1,2\n")
    c = write("c", t="x,y\n1,2\n1,2\n", only_a="x\n")
    d = write("d", t="y,x\n2,1\n", only_a="x\n")
    assert compare(a, b, 0.1) == [
        Difference("only_a.csv", "", "", "present", "missing"),
        Difference("t.csv", "", "y", "present", "missing"),
        Difference("t.csv", "", "z", "missing", "present"),
    ]
    assert compare(a, c, 0.1) == [Difference("t.csv", "", "", "1 rows", "2 rows")]
    assert len(compare(a, d, 0.1)) == 1


def test_folder_without_tables_is_an_error(tmp_path: Path, folders: Folders) -> None:
    a, _ = folders("n_failed", "0")
    for other in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UserError, match="no tables"):
            compare(a, other, tolerance=0.1)
