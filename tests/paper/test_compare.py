"""`make compare` and `make drift`: two files of vectors, two folders of images."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.serialization.measure import synthetic_vectors
from harness import sinks
from harness.table import Row, read_table
from paper import compare
from paper.drift import kolmogorov_smirnov, main
from tests import making
from wallclock.errors import UserError

# --- compare --------------------------------------------------------------------------------------


DIM = 32
Drift = Callable[[Path, Path], tuple[str, dict[str, Row]]]


def vectors(n: int, spread: float = 1.0) -> tuple[list[str], Any]:
    """n ids and vectors; with a small spread all nearly parallel, as of a network's vectors."""
    ids, noise = synthetic_vectors(n, DIM, 0)
    return ids, 1 + spread * noise if spread < 1 else noise


def measured(a: Any, b: Any, **options: Any) -> dict[object, dict[str, Any]]:
    return {row["measure"]: row for row in compare.compare(a, b, **options)}


def outside(rows: dict[object, dict[str, Any]]) -> set[object]:
    return {name for name, row in rows.items() if not row["within"]}


@pytest.mark.parametrize("spread", [1.0, 0.01])
def test_one_swapped_pair_among_ten_thousand(spread: float) -> None:
    """Also where the swapped vectors are alike: their cosine, 0.9998, is within its limit."""
    ids, a = vectors(10_000, spread)
    b = a + np.float32(1e-5) * np.random.default_rng(1).standard_normal(a.shape, np.float32)
    b[[17, 4242]] = b[[4242, 17]]
    rows = measured((ids, a), (ids, b))
    assert outside(rows) == ({"misplaced", "cosine min"} if spread == 1 else {"misplaced"})
    swapped = {f"{ids[17]} (as {ids[4242]})", f"{ids[4242]} (as {ids[17]})"}
    assert (rows["misplaced"]["value"], {*rows["misplaced"]["ids"].split("; ")}) == (2, swapped)
    worst = rows["cosine min"]["ids"].split("; ")
    assert {name.split()[0] for name in worst[:2]} == {ids[17], ids[4242]}
    assert (rows["cosine p1"]["n"], rows["recall@10"]["n"]) == (10_000, 2000)


@settings(max_examples=40)
@given(st.permutations(range(30)), st.floats(0, 1e-4), st.sampled_from([0.5, 1.0, 7.0]))
def test_order_length_and_noise_do_not_matter(order: list[int], noise: float, scale: float) -> None:
    ids, a = vectors(30)
    b = scale * (a + np.float32(noise) * np.random.default_rng(1).standard_normal(a.shape))[order]
    rows = measured((ids, a), ([ids[i] for i in order], b.astype(np.float32)))
    assert not outside(rows)
    assert rows["recall@10"]["value"] > 0.99


@settings(max_examples=40)
@given(
    st.sets(st.integers(0, 19), max_size=8),
    st.sets(st.integers(0, 19), max_size=8),
    st.dictionaries(st.integers(0, 19), st.sampled_from([0.0, np.nan, np.inf]), max_size=5),
    st.integers(0, 3),
)
def test_what_cannot_be_compared_is_counted(
    gone_a: set[int], gone_b: set[int], bad: dict[int, float], twice: int
) -> None:
    ids, a = vectors(20)
    b = a.copy()
    for i, value in bad.items():
        b[i] = value
    keep_a, keep_b = (sorted({*range(20)} - gone) for gone in (gone_a, gone_b))
    keep_b += keep_b[:1] * twice
    sides = [([ids[i] for i in keep], v[keep]) for keep, v in ((keep_a, a), (keep_b, b))]
    rows = measured(*sides)
    assert rows["missing in A"]["value"] == len(gone_a - gone_b)
    assert rows["missing in B"]["value"] == len(gone_b - gone_a)
    assert rows["duplicates"]["value"] == twice
    common = {*keep_a} & {*keep_b}
    assert rows["invalid"]["value"] == len(common & bad.keys())
    assert {*filter(None, rows["invalid"]["ids"].split("; "))} == {ids[i] for i in common & {*bad}}
    rest = len(common - bad.keys())
    assert rows["cosine min"]["n"] == rest
    assert rows["cosine min"]["value"] == (pytest.approx(1) if rest else None)
    assert rows["cosine min"]["within"] == bool(rest)


@settings(max_examples=40)
@given(st.integers(2, 40), st.integers(0, 5), st.integers(1, 50))
def test_recall_is_that_of_all_pairs(n: int, seed: int, queries: int) -> None:
    ids, a = vectors(n)
    b = a + np.random.default_rng(seed).standard_normal(a.shape, np.float32)
    units = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (a, b)]
    k, shares = min(10, n - 1), []
    for i in range(n):
        near = [{*[j for j in np.argsort(-(u @ u[i])) if j != i][:k]} for u in units]
        shares.append(len(near[0] & near[1]) / k)
    row = measured((ids, a), (ids, b), queries=queries)["recall@10"]
    assert row["n"] == min(n, queries)
    if queries >= n:
        assert row["value"] == pytest.approx(np.mean(shares))


def test_equal_pictures_are_not_misplaced_and_have_no_order() -> None:
    ids, a = vectors(40)
    a[:] = a[np.arange(40) // 20]
    assert not outside(measured((ids, a), (ids, a.copy())))
    assert not outside(measured((ids[:1], a[:1]), (ids[:1], a[:1])))


def test_limits_and_mistakes() -> None:
    ids, a = vectors(50)
    b = a + np.float32(0.2) * np.random.default_rng(1).standard_normal(a.shape, np.float32)
    assert {"cosine p50", "cosine p1", "cosine min"} <= outside(measured((ids, a), (ids, b)))
    assert not outside(measured((ids, a), (ids, b), limits=dict.fromkeys(compare.LIMITS, 0.5)))
    with pytest.raises(UserError, match="of A have 32 components, of B 31"):
        compare.compare((ids, a), (ids, a[:, 1:]))
    with pytest.raises(UserError, match="no id in common"):
        compare.compare((ids, a), ([name * 2 for name in ids], a))


def written(folder: Path, name: str, ids: list[str], rows: Any) -> Path:
    folder.mkdir(exist_ok=True)
    sink = sinks.make(name, folder, rows.shape[1])
    sink.write(ids, rows)
    sink.close()
    return sink.path


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every format, the three exit statuses, the table and the closing sentence."""
    ids, a = vectors(12)
    paths = {name: written(tmp_path / name, name, ids, a) for name in sinks.SINKS}

    def run(b: Path, *flags: str) -> tuple[int, list[str], str]:
        arguments = ["--a", str(paths["npy"]), "--b", str(b), "--out", str(tmp_path), *flags]
        status = compare.main(arguments)
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err

    for path in paths.values():
        status, lines, _ = run(path)
        assert (status, lines[-1]) == (0, "12 vectors of A, 12 of B: within all limits")
    fewer = written(tmp_path / "fewer", "npy", ids[1:], a[1:])
    status, lines, _ = run(fewer)
    words = "12 vectors of A, 11 of B: outside the limits: missing in B 1"
    assert (status, lines[-1]) == (3, words)
    rows = {row["measure"]: row for row in read_table(tmp_path / "compare.csv")}
    assert (rows["missing in B"]["within"], rows["missing in B"]["ids"]) == (False, ids[0])
    assert run(fewer, "--missing-in-b", "1")[0] == 0
    (tmp_path / "cut.parquet").write_bytes(paths["parquet"].read_bytes()[:100])
    (tmp_path / "a.txt").touch()
    for name, expected in (("cut.parquet", 1), ("a.txt", 2), ("absent.npy", 2)):
        status, lines, error = run(tmp_path / name)
        assert (status, lines, error.count("\n")) == (expected, [], 1)
        assert error.startswith("wallclock: ")
    assert run(fewer, "--queries", "0")[0] == 2


# --- drift ----------------------------------------------------------------------------------------


samples = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


@given(samples, samples)
def test_statistic_is_the_largest_distance(a: list[float], b: list[float]) -> None:
    distances = [abs(np.mean([v <= x for v in a]) - np.mean([v <= x for v in b])) for x in (*a, *b)]
    assert kolmogorov_smirnov(a, b) == pytest.approx(max(distances))
    assert kolmogorov_smirnov(a, a) == 0


@pytest.fixture
def drift(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Drift:
    """What the command prints, and the rows of its table by measure."""

    def run(a: Path, b: Path) -> tuple[str, dict[str, Row]]:
        out = tmp_path / "out"
        status = main(["--a", str(a), "--b", str(b), "--out", str(out)])
        printed = capsys.readouterr()
        if status:
            return printed.err, {}
        return printed.out, {row["measure"]: row for row in read_table(out / "drift.csv")}

    return run


def fill(path: Path, side: int, *, brighter: int = 0, progressive: bool = False) -> Path:
    path.mkdir()
    for seed in range(40):
        pixels = making.picture(side + seed, side, seed).astype(int) + brighter
        data = making.encode(pixels.clip(0, 255).astype(np.uint8), progressive=progressive)
        (path / f"{seed}.jpg").write_bytes(data)
    return path


def test_changed_measures_are_named(drift: Drift, tmp_path: Path) -> None:
    small = fill(tmp_path / "small", 64)
    large = fill(tmp_path / "large, now", 128, progressive=True)
    printed, rows = drift(small, large)
    drifted = {name for name, row in rows.items() if row["drifted"]}
    shares = {"share of JPEG baseline", "share of JPEG progressive"}
    assert {"megapixels", "longest_px"} | shares <= drifted
    assert "brightness" not in drifted
    assert rows["share of JPEG progressive"]["verdict"] == "drifted: 0% to 100% of the images"
    assert rows["megapixels"]["shift"] > 1
    assert rows["megapixels"]["status"] == "ok"
    assert "40 images of A, 40 of B: drift in " in " ".join(printed.split())


def test_brightness_alone_and_no_drift(drift: Drift, tmp_path: Path) -> None:
    dark, bright = fill(tmp_path / "dark", 48), fill(tmp_path / "bright", 48, brighter=60)
    rows = drift(dark, bright)[1]
    assert rows["brightness"]["drifted"]
    assert rows["megapixels"]["drifted"] is rows["longest_px"]["drifted"] is False
    printed = drift(dark, dark)[0]
    assert printed.splitlines()[-1] == "40 images of A, 40 of B: no drift"


def test_folder_without_images_is_one_line(drift: Drift, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (line,) = drift(tmp_path / "empty", tmp_path)[0].strip().splitlines()
    assert line.startswith("wallclock: no image under")
