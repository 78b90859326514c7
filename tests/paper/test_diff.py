"""Two regenerated folders, in what both ran: equal where they must be, close where they vary."""

import codecs
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from experiments.serial import cells as serial
from harness.table import read_table
from paper.__main__ import main
from paper.cited import select
from paper.claims import DIFFERS, HELD, INCONCLUSIVE
from paper.diff import ONE_SIDED, Difference, compare
from tests.fixture_run import fixture_tables
from tests.paper.tables import copy_tables, edit
from wallclock.errors import UserError

SMALL = serial.CSVS["small_256"]
Folders = Callable[..., tuple[Path, Path]]


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Two folders with one serial table each; in the second, cells of PIL's row are changed."""

    def make(**changes: object) -> tuple[Path, Path]:
        a, b = (copy_tables(tmp_path / name, SMALL) for name in "ab")
        edit(b / SMALL, "decoder=pil", **changes)
        return a, b

    return make


def write(folder: Path, **tables: str) -> Path:
    folder.mkdir(exist_ok=True)
    for table, text in tables.items():
        (folder / f"{table}.csv").write_text(text)
    return folder


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
    a, b = folders(**{column: value, "reason": "words are not compared"})
    # Verdicts only restate other tables.
    (a / "claims.csv").write_text("id,reason\nx,+1 %\n")
    (difference,) = compare(a, b, tolerance=10.0).differences
    assert (difference.csv, difference.column, difference.b) == (SMALL, column, value)
    assert difference.row.startswith("1 ")


@pytest.mark.parametrize("column", ["wall_s", "img_per_s", "forward_share"])
def test_times_may_vary_within_tolerance(folders: Folders, column: str) -> None:
    row = select(read_table(fixture_tables() / SMALL), "decoder=pil")
    assert row is not None
    value = row[column]
    assert compare(*folders(**{column: value * 1.09}), tolerance=0.1).differences == []
    for changed in (value * 1.2, ""):
        differences = compare(*folders(**{column: changed}), tolerance=0.1).differences
        assert [difference.column for difference in differences] == [column]


def test_repeats_that_overlap_leave_it_open(tmp_path: Path) -> None:
    """A number and its limits are one number; its limits are not compared by themselves."""
    header = "decoder,mean_ms,mean_ms_min,mean_ms_max\n"
    a = write(tmp_path / "a", t=f"{header}x,2,1.9,3.1\ny,1,1,1\n")
    b = write(tmp_path / "b", t=f"{header}x,3,2.9,9\ny,1,1,5\n")
    (difference,) = compare(a, b, 0.1).differences
    assert (difference.column, difference.verdict) == ("mean_ms", INCONCLUSIVE)
    assert compare(a, b, 0.1).status == 0
    write(b, t=f"{header}x,4,3.2,9\ny,1,1,5\n")
    assert [each.verdict for each in compare(a, b, 0.1).differences] == [DIFFERS]
    assert compare(a, b, 0.1).status == 1


def n_differences(a: Path, b: Path, tolerance: float) -> int:
    return len(compare(a, b, tolerance).differences)


def test_a_hundredth_of_wall_time_is_noise(folders: Folders) -> None:
    assert n_differences(*folders(d2h_s=0.03), tolerance=0.1) == 0
    assert n_differences(*folders(d2h_share=0.009), tolerance=0.1) == 0
    assert n_differences(*folders(d2h_s=0.05), tolerance=0.1) == 1
    assert n_differences(*folders(d2h_share=0.02), tolerance=0.1) == 1
    # A rate is no part of the wall time, though its name ends like one.
    assert n_differences(*folders(img_per_s=13.5), tolerance=0.001) == 1


def test_computed_numbers_vary_by_rounding(tmp_path: Path) -> None:
    for name, cosine in (("a", "0.99991"), ("b", "0.9999"), ("c", "0.98")):
        write(tmp_path / name, t=f"recipe,cosine,n_images\nx,{cosine},1000\n")
    assert n_differences(tmp_path / "a", tmp_path / "b", tolerance=0.5) == 0
    assert n_differences(tmp_path / "a", tmp_path / "c", tolerance=0.5) == 1
    # A count is not rounded.
    write(tmp_path / "b", t="recipe,cosine,n_images\nx,0.9999,1001\n")
    assert n_differences(tmp_path / "a", tmp_path / "b", tolerance=0.5) == 1


@hypothesis_settings(max_examples=20)
@given(
    st.sampled_from(["mean_ms", "img_per_s", "wall_s", "peak_memory_mib", "decoder"]),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 1),
)
def test_comparing_is_symmetric(
    tmp_path_factory: pytest.TempPathFactory, column: str, x: float, y: float, tolerance: float
) -> None:
    folder = tmp_path_factory.mktemp("pair", numbered=True)
    for name, value in (("a", x), ("b", y)):
        write(folder / name, t=f"{column},status\n{value!r},ok\n")
    there = n_differences(folder / "a", folder / "b", tolerance)
    assert there == n_differences(folder / "b", folder / "a", tolerance)
    is_beyond = column == "decoder" or abs(x - y) > tolerance * max(x, y)
    assert there == (1 if x != y and is_beyond else 0)
    assert n_differences(folder / "a", folder / "a", tolerance) == 0


def _three_digits(cell: str) -> str:
    return f"{float(cell):.3g}" if cell.count(".") == 1 and "." in cell.strip(".") else cell


class TestSpreadsheet:
    """What a spreadsheet does to a table is no difference: values and names count."""

    SAVED: Mapping[str, Callable[[str], bytes]] = {
        "byte-order mark": lambda text: codecs.BOM_UTF8 + text.encode(),
        "UTF-16": lambda text: text.encode("utf-16"),
        "CR LF": lambda text: text.replace("\n", "\r\n").encode(),
        "tabs": lambda text: text.replace(",", "\t").encode(),
        "decimal commas": lambda text: text.replace(",", ";").replace(".", ",").encode(),
        "order": lambda text: "\n".join(
            ",".join(reversed(line.split(","))) for line in text.splitlines()
        ).encode(),
        "three digits": lambda text: "\n".join(
            ",".join(_three_digits(cell) for cell in line.split(",")) for line in text.splitlines()
        ).encode(),
    }

    @pytest.mark.parametrize("form", SAVED)
    def test_saved_by_one(self, form: str, tmp_path: Path) -> None:
        columns = "decoder,image_set,mean_ms,psnr_db,median_kb,page_faults_per_image,status"
        text = (
            f"{columns}\npil,original,25.1234,40.123,305.25,12.456,ok\nopencv,original,9.5,,,,ok\n"
        )
        name = "decoder-comparison"
        a = write(tmp_path / "a", **{name: text})
        b = write(tmp_path / "b")
        (b / f"{name}.csv").write_bytes(self.SAVED[form](text))
        result = compare(a, b, 0.01)
        assert (result.differences, result.one_sided, result.n_rows) == ([], [], 2)
        assert result.status == 0

    def test_a_column_more(self, tmp_path: Path) -> None:
        a = write(tmp_path / "a", t="decoder,mean_ms\npil,1\n")
        b = write(tmp_path / "b", t="decoder,remark,mean_ms\npil,hot,1\n")
        result = compare(a, b, 0.1)
        assert result.one_sided == ["t.csv: the column remark only in B"]
        assert (result.differences, result.status) == ([], ONE_SIDED)

    def test_what_is_not_a_number_is_named(self, tmp_path: Path) -> None:
        a, b = (write(tmp_path / name, t="decoder,mean_ms\npil,fast\n") for name in "ab")
        with pytest.raises(UserError, match="row 1, column mean_ms: 'fast' is not a number"):
            compare(a, b, 0.1)


class TestWhatOneSideDidNotRun:
    """It is counted in a line, is no difference, and has an exit status of its own."""

    def test_tables(self, tmp_path: Path) -> None:
        a = write(tmp_path / "a", t="x\n1\n", u="x\n1\n", v="x\n1\n")
        b = write(tmp_path / "b", t="x\n1\n", w="x\n1\n")
        result = compare(a, b, 0.1)
        assert (result.differences, result.status) == ([], ONE_SIDED)
        assert result.one_sided == ["2 tables only in A: u.csv, v.csv", "1 table only in B: w.csv"]
        assert (result.n_tables, result.n_rows) == (1, 1)

    def test_rows(self, tmp_path: Path) -> None:
        """Rows are matched by what names them, not by their place."""
        a = write(tmp_path / "a", t="decoder,workers,mean_ms\npil,1,10\npil,2,6\nopencv,1,5\n")
        b = write(tmp_path / "b", t="decoder,workers,mean_ms\nturbo,1,3\nopencv,1,9\npil,1,10\n")
        result = compare(a, b, 0.1)
        assert result.one_sided == ["t.csv: 1 row only in A, 1 row only in B"]
        assert result.differences == [Difference("t.csv", "3 opencv 1", "mean_ms", "5", "9")]
        assert result.n_rows == 2

    def test_a_choice_that_varies_names_no_row(self, tmp_path: Path) -> None:
        """The best variant of a loader may be another one; its images name the row."""
        a = write(tmp_path / "a", t="system,variant,image_set\nx,v,small\nx,w,large\ny,v,small\n")
        b = write(tmp_path / "b", t="system,variant,image_set\nx,w,small\nx,w,large\n")
        result = compare(a, b, 0.1)
        assert result.one_sided == ["t.csv: 1 row only in A"]
        assert result.differences == [Difference("t.csv", "1 x small", "variant", "v", "w")]

    def test_rows_that_are_unavailable(self, tmp_path: Path) -> None:
        rows = {
            "a": ("5,ok", ",unavailable", ",unavailable"),
            "b": (",unavailable", "7,ok", ",oom"),
        }
        for name, (first, second, third) in rows.items():
            text = f"decoder,mean_ms,status\nx,{first}\ny,{second}\nz,{third}\np,1,ok\n"
            write(tmp_path / name, t=text)
        result = compare(tmp_path / "a", tmp_path / "b", 0.1)
        assert result.one_sided == ["t.csv: 1 row only in A, 2 rows only in B"]
        assert (result.differences, result.n_rows) == ([], 1)

    def test_a_row_that_failed_was_run(self, folders: Folders) -> None:
        """Its status says enough: its empty cells are not listed."""
        a, b = folders(status="gate failed", img_per_s="", wall_s="", reason="pixels")
        (difference,) = compare(a, b, 0.1).differences
        assert (difference.column, difference.b) == ("status", "gate failed")


def test_what_is_the_same_in_all_rows_is_one_difference(tmp_path: Path) -> None:
    a = write(tmp_path / "a", t="decoder,device\nx,T4\ny,T4\n")
    b = write(tmp_path / "b", t="decoder,device\nx,L4\ny,L4\n")
    assert compare(a, b, 0.1).differences == [
        Difference("t.csv", "all 2 rows", "device", "T4", "L4")
    ]


def test_the_numbers_that_matter_come_first(
    folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with both values, ratio, tolerance, verdict, table and row; the rest on request."""
    ends = {"seconds_per_100k_min": 1.0, "seconds_per_100k_max": 1.0}
    a, b = folders(seconds_per_100k=1.0, **ends, d2h_share=0.3)
    first = compare(a, b, 0.25).numbers[0]
    assert (first.claim.id, first.b, first.verdict) == ("serial-small-pil-wall", 1, DIFFERS)
    assert {number.verdict for number in compare(a, a, 0.25).numbers} == {HELD}
    command = ["diff", "--a", str(a), "--b", str(b)]
    assert main(command) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[-1] == DIFFERS
    assert "± 25 %" in lines[1]
    assert lines[2] == f"  {SMALL}, decoder=pil: seconds_per_100k"
    assert "d2h_share" not in "\n".join(lines)
    assert main([*command, "--all"]) == 1
    assert "d2h_share" in capsys.readouterr().out
    assert main([*command, "--short"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_nothing_in_common_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no table in common"):
        compare(write(tmp_path / "a", t="x\n1\n"), write(tmp_path / "b", u="x\n1\n"), 0.1)


def test_folder_without_tables_is_an_error(tmp_path: Path, folders: Folders) -> None:
    a, _ = folders(n_failed="0")
    for other in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UserError, match="no tables"):
            compare(a, other, tolerance=0.1)
