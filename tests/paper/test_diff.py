"""Two regenerated folders: equal where they must be, close where they may vary. And the printing."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from wallclock.errors import UserError
from wallclock.paper.claims import VERDICTS, judge, load
from wallclock.paper.diff import Difference, compare
from wallclock.paper.show import print_differences, print_verdicts

SERIAL = "t4-serial-stages.csv"
CLAIMS = Path(__file__).parents[2] / "data" / "paper" / "claims.csv"

Rows = list[dict[str, object]]
Make = Callable[..., Rows]
Save = Callable[[Path, str, Rows], Path]


@pytest.fixture
def folders(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> Callable[[str, object], tuple[Path, Path]]:
    """Two folders with one serial table each; the second one's first row has one cell changed."""

    def make(column: str, value: object) -> tuple[Path, Path]:
        rows = serial_rows()
        save_table(tmp_path / "a", SERIAL, rows)
        rows[0][column] = value
        save_table(tmp_path / "b", SERIAL, rows)
        return tmp_path / "a", tmp_path / "b"

    return make


Folders = Callable[[str, object], tuple[Path, Path]]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(
            ("decoder", "opencv"),
            ("status", "failed"),
            ("n_images", 9999),
            ("image_set", "original"),
        ),
        *(
            ("origin", "extrapolated"),
            ("seconds_per_100k_origin", "measured"),
            ("gate", "failed"),
            ("n_failed", 1),
        ),
        *(("median_kb", 7.5), ("interpolation", "area"), ("device", "NVIDIA L4"), ("repeats", 3)),
    ],
)
def test_what_was_measured_must_be_equal(folders: Folders, column: str, value: object) -> None:
    (difference,) = compare(*folders(column, value), tolerance=10.0)
    assert (difference.csv, difference.column, difference.b) == (SERIAL, column, str(value))
    assert difference.row.startswith("1 ")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("wall_s", 58.8), ("wall_s_min", 57.918), ("wall_s_max", 59.976), ("img_per_s", 170.068)),
        *(("seconds_per_100k", 588.0), ("forward_s", 34.1), ("forward_share", 0.579932)),
    ],
)
def test_a_time_may_vary_within_the_tolerance(folders: Folders, column: str, value: float) -> None:
    assert compare(*folders(column, value * 1.09), tolerance=0.1) == []
    assert [each.column for each in compare(*folders(column, value * 1.2), tolerance=0.1)] == [
        column
    ]
    assert [each.column for each in compare(*folders(column, None), tolerance=0.1)] == [column]


def test_a_stage_of_less_than_a_hundredth_of_the_wall_is_noise(folders: Folders) -> None:
    assert compare(*folders("d2h_s", 0.6), tolerance=0.1) == []
    assert compare(*folders("d2h_share", 0.012), tolerance=0.1) == []
    assert len(compare(*folders("d2h_s", 0.9), tolerance=0.1)) == 1
    assert len(compare(*folders("d2h_share", 0.02), tolerance=0.1)) == 1
    # a rate is no part of the wall, though its name ends like one
    assert len(compare(*folders("img_per_s", 170.5), tolerance=0.001)) == 1


def test_computed_numbers_may_differ_by_rounding_only(tmp_path: Path) -> None:
    for name, cosine in (("a", "0.99991"), ("b", "0.99992"), ("c", "0.98")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.csv").write_text(f"recipe,cosine\nx,{cosine}\n")
    assert compare(tmp_path / "a", tmp_path / "b", tolerance=0.5) == []
    assert len(compare(tmp_path / "a", tmp_path / "c", tolerance=0.5)) == 1


@given(
    st.sampled_from(
        ["mean_ms", "img_per_s", "ns_per_call", "ratio_to_contextlib", "size_mib", "decoder"]
    ),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 1),
)
def test_comparing_is_symmetric_and_nothing_differs_from_itself(
    tmp_path_factory: pytest.TempPathFactory, column: str, x: float, y: float, tolerance: float
) -> None:
    folder = tmp_path_factory.mktemp("pair", numbered=True)
    for name, value in (("a", x), ("b", y)):
        (folder / name).mkdir()
        (folder / name / "t.csv").write_text(f"{column},status\n{value!r},ok\n")
    there, back = (
        compare(folder / one, folder / other, tolerance) for one, other in (("a", "b"), ("b", "a"))
    )
    assert bool(there) == bool(back)
    assert bool(there) == (x != y and (column == "decoder" or abs(x - y) > tolerance * max(x, y)))
    assert compare(folder / "a", folder / "a", tolerance) == []


def test_tables_columns_and_rows_must_be_the_same(tmp_path: Path) -> None:
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


def test_verdicts_are_not_compared_but_what_they_judge_is(folders: Folders) -> None:
    a, b = folders("wall_s", 58.9)
    (a / "claims.csv").write_text("id,reason\nx,+1 %\n")
    assert compare(a, b, tolerance=0.1) == []


def test_a_folder_without_tables_is_an_error(tmp_path: Path, folders: Folders) -> None:
    a, _ = folders("wall_s", 1.0)
    for other in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UserError, match="no tables"):
            compare(a, other, tolerance=0.1)


def printed(show: Callable[[Console], None], width: int = 100) -> str:
    """What `show` prints on a terminal of that width, without colour."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_verdicts_fit_the_terminal_and_are_counted(
    tmp_path: Path, serial_rows: Make, save_table: Save, width: int
) -> None:
    save_table(tmp_path, SERIAL, serial_rows(device="NVIDIA H100 80GB HBM3"))
    verdicts = judge(load(CLAIMS), tmp_path)
    text = printed(lambda console: print_verdicts(verdicts, console), width)
    assert max(map(len, text.splitlines())) <= width
    for verdict in verdicts:
        (line,) = [line for line in text.splitlines() if line.split()[:1] == [verdict.claim.id]]
        assert verdict.verdict in line
    counts = text.splitlines()[-1]
    for word in VERDICTS:
        assert f"{sum(verdict.verdict == word for verdict in verdicts)} {word}" in counts
    assert text.count("binds on a Tesla T4 only") == 1


def test_differences_are_printed_in_full_and_their_absence_too() -> None:
    difference = Difference(SERIAL, "1 pil", "wall_s", "58.8", "[red]91.2")
    text = printed(lambda console: print_differences([difference], console))
    assert all(
        cell in text for cell in (SERIAL, "1 pil", "wall_s", "58.8", "[red]91.2", "1 difference")
    )
    assert "no difference" in printed(lambda console: print_differences([], console))
