"""`frontier` and `ablation`: grids, tables and sentences; pairs of repeats, levels of fidelity."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiments.ablation import cells as ablation
from experiments.common import Records, Row
from experiments.frontier import cells as frontier
from experiments.frontier import levels, pairs
from experiments.sentences import MeasuredRows
from harness.engines import third_party
from harness.plan import Plan
from harness.records import Record
from harness.spec import Cell
from harness.table import cell_of, column
from tests import making
from tests.experiments import made
from tests.experiments.conftest import Grid

# --- frontier -------------------------------------------------------------------------------------


PIXELS = {"psnr_db": 49.0, "psnr_db_min": 43.0, "psnr_loss_vs_area_db": 0.4}
CLOSE = {"psnr_db_min": 38.0}
NO_LEVEL = {"psnr_db_min": 25.0}


def loaded(
    system: str,
    rate: float,
    variant: str = "",
    repeat: int = 0,
    others: float = 0.0,
    pixels: dict[str, float] | None = None,
) -> Record:
    """A loader that took ten seconds; its `pixels` were compared in the first repeat."""
    values: dict[str, Any] = {"n_loaded": round(rate * 10), "other_cores": others, "cores": 4}
    values |= {"median_kb": 305.0, "median_megapixels": 5.02}
    if repeat == 0:
        values["fidelity"] = PIXELS | (pixels or {})
    params = {"system": system, "variant": "", "setup": variant, "subset": "all"}
    new = made.record("frontier", "loading", f"{system}-{variant}", values, params)
    return replace(new, cell=replace(new.cell, repeat=repeat))


def thrice(system: str, rates: tuple[float, ...], **changes: Any) -> list[Record]:
    """Three repeats; `others`: cores that other programs took in each."""
    others = changes.pop("others", (0.0, 0.0, 0.0))
    return [
        loaded(system, rate, repeat=repeat, others=others[repeat], **changes)
        for repeat, rate in enumerate(rates)
    ]


def rows_of(records: Records) -> dict[tuple[object, object], Row]:
    """System and variant → row."""
    rows = frontier.tables(records)[frontier.CSV]
    return {(row["system"], row["variant"]): row for row in rows}


def sentence_of(records: Records) -> str:
    rows = frontier.tables(records)[frontier.CSV]
    read = [
        {name: column(frontier.CSV, name).parse(cell_of(cell)) for name, cell in row.items()}
        for row in rows
    ]
    return frontier.sentence(MeasuredRows(lambda _: read))


@pytest.fixture
def mixed(tmp_path: Path) -> Plan:
    """A plan over three images, with a folder of four, half of them progressive."""
    base, mine = tmp_path / "base", tmp_path / "mine"
    base.mkdir()
    mine.mkdir()
    for seed in range(4):
        (mine / f"{seed}.jpg").write_bytes(making.jpeg(seed=seed, progressive=seed % 2 == 0))
    folder = f"experiment.frontier.folders=['{mine}']"
    return made.plan(base, "experiment=[frontier]", "repeats=3", folder)


def test_rounds(mixed: Plan) -> None:
    """The second measures the best at each level, in passes of its own; the table has these."""
    options = mixed.settings.experiments["frontier"]
    options = {**options, "systems": ["pil-draft", "ours", "dali"]}

    def measured(cell: Cell) -> Record:
        system, variant = cell.params["system"], cell.params["variant"]
        rate = {"1": 120.0, "2": 110.0}.get(variant, 100.0)
        if "search" not in cell.params:
            rate -= 50
        pixels = {"1": CLOSE, "thumbnail": NO_LEVEL}.get(variant)
        record = loaded(system, rate, repeat=cell.repeat, pixels=pixels)
        return replace(record, cell=cell, status="unavailable" if system == "dali" else "ok")

    first = [measured(cell) for cell in frontier.cells(mixed, options)]
    assert {(r.cell.repeat, r.cell.params["subset"]) for r in first} == {
        (repeat, "all") for repeat in range(3)
    }
    assert all(r.cell.params["seconds"] == 1 for r in first)
    full = [measured(cell) for cell in frontier.second_round(mixed, options, first)]
    assert len({(r.cell.label, r.cell.images, r.cell.repeat) for r in full}) == 3 * 3 * 4
    assert len(full) == 3 * 3 * 4
    assert {r.cell.params["seconds"] for r in full} == {3}
    assert {r.cell.params["variant"] for r in full} == {"", "1", "2"}
    assert len(frontier.expected_second_round(mixed, options)) >= len(full)
    for records, faithful in ((first, 110.0), ([*first, *full], 60.0)):
        rows = frontier.tables(records)[frontier.CSV]
        assert {(row["system"], row["status"], row["level"]) for row in rows} == {
            ("pil-draft", "ok", "faithful"),
            ("pil-draft", "ok", "close"),
            ("ours", "ok", "faithful"),
            ("dali", "unavailable", None),
        }
        available = [row for row in rows if row["status"] == "ok"]
        drafts = [row for row in available if row["system"] == "pil-draft"]
        rates = {row["level"]: row["img_per_s"] for row in drafts}
        assert rates == {"faithful": faithful, "close": faithful + 10}
        assert {row["repeats"] for row in available} == {3}
        assert "thumbnail: 100 img/s, no level (25.0 dB)" in str(drafts[0]["other_variants"])
        ours = next(row for row in available if row["system"] == "ours")
        assert (ours["next"], ours["next_close"]) == ("pil-draft", "pil-draft")
        assert ours["speedup_vs_next"] > ours["speedup_vs_next_close"]
    assert not frontier.second_round(mixed, options, [r for r in first if not r.ok])


def test_grid_splits_a_folder_by_jpeg_process(mixed: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(third_party, "is_installed", lambda name: True)
    options = mixed.settings.experiments["frontier"]
    cells = frontier.cells(mixed, {**options, "all_variants": False})
    subsets = {(cell.images.n, cell.params["subset"]) for cell in cells}
    assert subsets == {(3, "all"), (4, "all"), (4, "baseline"), (4, "progressive")}


def test_on_a_gpu_every_batch_ends_on_the_device(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[frontier]", "corpus.image_set=small_256", "n=2")
    options = plan.settings.experiments["frontier"]
    for device, finish in (("cpu", None), ("cuda", "device")):
        ours = replace(options["ours"], device=device)
        cells = frontier.cells(plan, {**options, "ours": ours})
        assert {cell.params.get("finish") for cell in cells} == {finish}
        assert {cell.recipe.device for cell in cells} == {device}
    there = loaded("ours", 2.0)
    assert frontier.tables([there])[frontier.CSV][0]["finish_line"] == "host"
    ended = replace(there.cell, params={**there.cell.params, "finish": "device"})
    row = frontier.tables([replace(there, cell=ended)])[frontier.CSV][0]
    assert row["finish_line"] == "device"


def test_each_level_has_its_next_fastest() -> None:
    records = thrice("ours", (500.0, 500.0, 500.0))
    records += thrice("pil-draft", (400.0, 400.0, 500.0), pixels=CLOSE)
    records += thrice("dali", (100.0, 100.0, 100.0))
    rows = rows_of(records)
    ours = rows["ours", ""]
    assert (ours["next"], ours["speedup_vs_next"]) == ("dali", 5.0)
    assert rows["dali", ""]["speedup_of_ours"] == 5.0
    assert (ours["next_close"], ours["speedup_vs_next_close"]) == ("pil-draft", 1.25)
    text = sentence_of(records)
    assert "(median 305 KB, 5.02 megapixels) on 4 cores" in text
    assert "5.00× (5.00 to 5.00) the next fastest loader with 40 dB in every image (DALI" in text
    close = "1.25× (1.00 to 1.25) the next fastest loader with 30 dB in every image"
    assert f"{close} (DataLoader + PIL draft), from which it cannot be told apart" in text


@pytest.mark.parametrize("changed", ["batch_size", "device"])
def test_a_row_of_another_setting_is_no_rival(changed: str) -> None:
    records = thrice("ours", (500.0, 500.0, 500.0)) + thrice("pil", (50.0, 50.0, 50.0))
    other = {"batch_size": replace(made.RECIPE, batch_size=7)}.get(changed, made.RECIPE)
    machine = made.MACHINE if changed == "batch_size" else {**made.MACHINE, "cpu": "Another"}
    records[3:] = [
        replace(record, cell=replace(record.cell, recipe=other), environment={"machine": machine})
        for record in records[3:]
    ]
    ours = rows_of(records)["ours", ""]
    assert ours["next"] is ours["speedup_vs_pil"] is None
    assert "×" not in sentence_of(records)


def test_a_disturbed_repeat_gives_no_headline() -> None:
    records = thrice("ours", (500.0, 500.0, 50.0), others=(0.0, 0.0, 0.98))
    records += thrice("pil", (50.0, 50.0, 50.0))
    ours = rows_of(records)["ours", ""]
    assert (ours["repeats"], ours["calm_repeats"], ours["img_per_s_min"]) == (2, 2, 500.0)
    assert ours["speedup_vs_next_min"] == 10.0
    assert "3 by 0.98 cores" in str(ours["reason"])
    assert ours["status"] == "ok"


def test_where_every_repeat_is_disturbed_there_is_no_ratio() -> None:
    busy = (0.3, 0.5, 0.98)
    calm = thrice("pil", (50.0, 50.0, 50.0))
    records = thrice("ours", (500.0, 500.0, 50.0), others=busy) + calm
    ours = rows_of(records)["ours", ""]
    assert (ours["repeats"], ours["calm_repeats"], ours["img_per_s"]) == (3, 0, 500.0)
    assert ours["speedup_vs_next"] is ours["speedup_vs_pil"] is None
    assert "none was calm" in str(ours["reason"])
    text = sentence_of(records)
    assert "disturbed every repeat" in text
    assert "×" not in text
    rival = thrice("ours", (500.0, 500.0, 500.0)) + thrice("dali", (90.0, 90.0, 90.0), others=busy)
    text = sentence_of(rival + calm)
    assert "no ratio to the next fastest loader with 40 dB in every image (DALI (CPU))" in text
    assert "10.0× (10.0 to 10.0) DataLoader + PIL" in text


def test_our_crop_is_nobodys_rival(mixed: Plan) -> None:
    """Its geometry is another one; the row has it as the loader named it."""
    options = mixed.settings.experiments["frontier"]
    systems = ["ours", "ours-crop", "thread-pool-crop"]
    options = {**options, "systems": systems, "all_variants": False}
    geometry = "shortest:256,crop:224x224,bicubic"
    planned = {cell.recipe.name: cell.recipe for cell in frontier.cells(mixed, options)}
    assert planned["ours-crop"] == replace(planned["ours"], name="ours-crop", preprocess=geometry)
    pool = planned["thread-pool-crop"]
    assert (pool.engine, pool.preprocess) == ("thread-pool-crop", geometry)
    crop = loaded("ours-crop", 900.0)
    ran = {**crop.values, "ran": {"preprocess": geometry}}
    records = [loaded("ours", 500.0), replace(crop, values=ran), loaded("pil", 50.0)]
    ours, crop_row, pil = frontier.tables(records)[frontier.CSV]
    assert [row["preprocess"] for row in (ours, crop_row, pil)] == ["squash", geometry, "squash"]
    assert (ours["speedup_vs_next"], pil["speedup_vs_next"]) == (10.0, 0.1)
    assert crop_row["gate"] == "passed"
    assert crop_row["speedup_vs_next"] is crop_row["speedup_vs_pil"] is None
    text = sentence_of(records)
    assert "10.0× (one repeat) DataLoader + PIL, " in text, "the only rival is no choice among many"
    assert "with DINOv2's crop 1.80× its rate without" in text


# --- ablation -------------------------------------------------------------------------------------


def test_each_rung_adds_one_step(grid: Grid) -> None:
    cells = grid("ablation", "repeats=3")
    rungs = [cell for cell in cells if cell.repeat == 0 and cell.params["mode"] == "cumulative"]
    assert [cell.params["step"] for cell in rungs] == [ablation.BASELINE, *ablation.STEPS]
    for before, after in pairwise(rungs):
        old, new = vars(before.recipe), vars(after.recipe)
        changed = {name for name in old if old[name] != new[name]} - {"name"}
        assert changed == set(ablation.STEPS[after.params["step"]])
    alone = [cell for cell in cells if cell.repeat == 0 and cell.params["mode"] == "alone"]
    assert [cell.params["step"] for cell in alone] == list(ablation.STEPS)[1:]
    assert {cell.recipe.decoder for cell in alone[:-1]} == {"pil"}


# --- pairs ----------------------------------------------------------------------------------------


def repeats(*rates: float) -> list[Record]:
    """Ten seconds at these rates, the repeats numbered."""
    records = []
    for number, rate in enumerate(rates):
        values = {"n_loaded": round(rate * 10)}
        record = made.record("frontier", "loading", "x", values, {})
        records.append(replace(record, cell=replace(record.cell, repeat=number)))
    return records


def test_a_ratio_is_the_median_of_pairs_of_one_block() -> None:
    row = pairs.ratio_columns("gain", repeats(500, 480, 300), repeats(50, 40, 60))
    assert row == {"gain": 10.0, "gain_min": 5.0, "gain_max": 12.0}
    without_first = pairs.ratio_columns("gain", repeats(500, 480, 300)[1:], repeats(50, 40, 60))
    assert without_first["gain_max"] == 12.0
    assert without_first["gain_min"] == 5.0


# --- levels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "level", "gate"),
    [
        ({"psnr_db": 47.4, "psnr_db_min": 40.0}, "faithful", "passed"),
        ({"psnr_db": 46.1, "psnr_db_min": 39.9}, "close", "passed"),
        ({"psnr_db": 46.1, "psnr_db_min": 30.0}, "close", "passed"),
        ({"psnr_db": 59.1, "psnr_db_min": 29.9}, "", "failed"),
        ({"psnr_db": 47.4}, "", "not checked"),
    ],
)
def test_the_worst_picture_decides_and_any_level_passes_the_gate(
    values: dict[str, float], level: str, gate: str
) -> None:
    row = levels.judge(values, "random")
    assert (row["level"], row["gate"], row["psnr_db"]) == (level, gate, values["psnr_db"])
    assert levels.judge(values | {"cosine": 0.99}, "pretrained")["cosine"] == 0.99
    assert levels.judge(values | {"cosine": 0.99}, "random")["cosine"] is None
