"""`frontier` and `ablation`: their grids, tables and sentences."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiments.ablation import cells as ablation
from experiments.common import Records, Row
from experiments.frontier import cells as frontier
from experiments.sentences import MeasuredRows
from harness import provenance
from harness.engines import third_party
from harness.plan import Plan
from harness.records import Record
from harness.spec import Cell, Recipe
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
    folder = f"experiment.frontier.folder='{mine}'"
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


def test_a_single_repeat_searches_nothing(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[frontier]", "repeats=1")
    options = plan.settings.experiments["frontier"]
    cells = frontier.cells(plan, options)
    assert len({cell.params["system"] for cell in cells}) == len(cells)
    assert not any("search" in cell.params for cell in cells)
    assert frontier.expected_second_round(plan, options) == []


def test_what_is_not_here_says_so_once(mixed: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(third_party, "is_installed", lambda name: name != "imagecodecs")
    options = mixed.settings.experiments["frontier"]
    options = {**options, "systems": ["imagecodecs", "kornia-rs"]}
    cells = [cell for cell in frontier.cells(mixed, options) if cell.images.n == 3]
    counts = {
        name: len({cell.label for cell in cells if cell.params["system"] == name})
        for name in options["systems"]
    }
    assert counts == {"imagecodecs": 1, "kornia-rs": 3 * 4}


def test_grid_splits_a_folder_by_jpeg_process(mixed: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(third_party, "is_installed", lambda name: True)
    options = mixed.settings.experiments["frontier"]
    cells = frontier.cells(mixed, {**options, "all_variants": False})
    subsets = {(cell.images.n, cell.params["subset"]) for cell in cells}
    assert subsets == {(3, "all"), (4, "all"), (4, "baseline"), (4, "progressive")}
    cells += frontier.cells(mixed, options)
    assert len({(cell.label, cell.corpus, cell.repeat) for cell in cells}) == len(cells)
    engines = {cell.params["system"]: cell.recipe.engine for cell in cells}
    assert engines.items() >= {"ours": "threads", "paper": "dataloader", "dali": "dali"}.items()
    assert engines["baseline"] == "dataloader"
    cores = provenance.machine()["cores"]
    paper = [cell for cell in cells if cell.recipe.name == "paper"]
    assert {
        (cell.params["setup"], cell.recipe.workers, cell.params["allocator"]) for cell in paper
    } == {
        ("", cores, "default"),
        ("allocator=keep", cores, "keep"),
        ("4 workers a core", 4 * cores, "default"),
        ("4 workers a core, allocator=keep", 4 * cores, "keep"),
    }
    drafts = {cell.params["setup"] for cell in cells if cell.params["system"] == "pil-draft"}
    assert {"1.25, allocator=keep", "thumbnail", "2, 4 workers a core, allocator=keep"} <= drafts
    assert {cell.recipe.workers for cell in cells if cell.params["system"] == "spdl"} == {cores}


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


def test_ratios_are_of_pairs_of_repeats() -> None:
    records = thrice("pil", (50.0, 40.0, 60.0))
    records += thrice("paper", (150.0, 150.0, 150.0), pixels=NO_LEVEL)
    records += thrice("ours", (500.0, 480.0, 300.0), pixels=CLOSE)
    pil, paper, ours = frontier.tables(records)[frontier.CSV]
    rates = (pil["img_per_s"], pil["img_per_s_min"], pil["img_per_s_max"], pil["repeats"])
    assert rates == (50.0, 40.0, 60.0, 3)
    assert (pil["gate"], pil["level"], pil["psnr_db"]) == ("passed", "faithful", 49.0)
    pairs = [ours[f"speedup_vs_next_close{end}"] for end in ("", "_min", "_max")]
    assert pairs == [10.0, 5.0, 12.0]
    assert ours["next"] is ours["speedup_vs_next"] is None, "it is not faithful itself"
    assert pil["next"] is None, "no other is faithful"
    assert pil["next_close"] == "ours"
    assert (ours["speedup_vs_pil"], ours["speedup_vs_paper"]) == (10.0, 3.2)
    assert (paper["gate"], paper["level"], paper["status"]) == ("failed", "", "ok")
    assert paper["next_close"] is None


def test_each_level_has_its_next_fastest() -> None:
    records = thrice("ours", (500.0, 500.0, 500.0))
    records += thrice("pil-draft", (400.0, 400.0, 500.0), pixels=CLOSE)
    records += thrice("dali", (100.0, 100.0, 100.0))
    ours = rows_of(records)["ours", ""]
    assert (ours["next"], ours["speedup_vs_next"]) == ("dali", 5.0)
    assert (ours["next_close"], ours["speedup_vs_next_close"]) == ("pil-draft", 1.25)
    text = sentence_of(records)
    assert "(median 305 KB, 5.02 megapixels) on 4 cores" in text
    assert "5.00× (5.00 to 5.00) the next fastest whose pictures all have 40 dB (DALI" in text
    close = "1.25× (1.00 to 1.25) the next fastest whose pictures all have 30 dB"
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
    assert "no ratio to the next fastest whose pictures all have 40 dB (DALI (CPU))" in text
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


def test_a_variant_that_reaches_no_level_is_quoted_only() -> None:
    records = [
        loaded("pil-draft", 300.0, "1", pixels=NO_LEVEL),
        loaded("pil-draft", 200.0, "1.25"),
        loaded("pil-draft", 100.0, "2"),
        loaded("dali", 150.0),
    ]
    draft, dali = frontier.tables(records)[frontier.CSV]
    assert (draft["variant"], draft["img_per_s"], draft["gate"]) == ("1.25", 200.0, "passed")
    assert (
        draft["other_variants"]
        == "1: 300 img/s, no level (25.0 dB); 2: 100 img/s, faithful (43.0 dB)"
    )
    assert (draft["speedup_vs_next"], dali["speedup_vs_next"]) == (200 / 150, 0.75)
    failing = frontier.tables(records[:1])[frontier.CSV]
    assert [(row["variant"], row["gate"]) for row in failing] == [("1", "failed")]


def test_a_row_that_was_not_compared_has_no_level() -> None:
    record = loaded("ours", 500.0)
    without = {name: value for name, value in record.values.items() if name != "fidelity"}
    (row,) = frontier.tables([replace(record, values=without)])[frontier.CSV]
    assert (row["gate"], row["level"]) == ("not checked", None)


# --- ablation -------------------------------------------------------------------------------------


LIMITS = {"min_psnr_db": 25.0, "min_cosine": 0.9}
RATES = {"baseline": 50.0, "libjpeg_turbo": 100.0, "scaled_decode": 300.0, "torch_resize": 330.0}


def test_each_rung_adds_one_step(grid: Grid) -> None:
    cells = grid("ablation", "repeats=3")
    rungs = [cell for cell in cells if cell.repeat == 0 and cell.params["mode"] == "cumulative"]
    assert [cell.params["step"] for cell in rungs] == [ablation.BASELINE, *ablation.STEPS]
    for before, after in pairwise(rungs):
        old, new = vars(before.recipe), vars(after.recipe)
        changed = {name for name in old if old[name] != new[name]} - {"name"}
        assert changed == set(ablation.STEPS[after.params["step"]])
    last = rungs[-1].recipe
    assert (last.engine, last.decoder, last.resizer) == ("threads", "native", "native")
    assert (last.dct_scale, last.normalize_on) == ("auto", "device")
    alone = [cell for cell in cells if cell.repeat == 0 and cell.params["mode"] == "alone"]
    assert [cell.params["step"] for cell in alone] == list(ablation.STEPS)[1:]
    assert {cell.recipe.decoder for cell in alone[:-1]} == {"pil"}
    assert len({(cell.label, cell.repeat) for cell in cells}) == len(cells) == 36


def rung(mode: str, step: str, rate: float, repeat: int = 0, others: float = 0.0) -> Record:
    params = {"mode": mode, "step": step, "fidelity": LIMITS}
    values = {"n_loaded": round(rate * 10), "cores": 2, "other_cores": others}
    recipe = Recipe(step, engine="dataloader")
    new = made.record("ablation", "loading", f"{mode}-{step}", values, params, recipe=recipe)
    return replace(new, cell=replace(new.cell, repeat=repeat))


def test_gains_are_against_the_rung_before_and_the_baseline() -> None:
    records = [rung("cumulative", step, rate) for step, rate in RATES.items()]
    records.append(rung("alone", "scaled_decode", 150.0))
    rows = ablation.tables(records)[ablation.CSV]
    gains = [(row["speedup_vs_baseline"], row["speedup_vs_previous"]) for row in rows]
    assert gains == [(1, 1), (2, 2), (6, 3), (6.6, pytest.approx(1.1)), (3, 3)]
    assert {row["gate"] for row in rows} == {"not checked"}
    assert {row["speedup_vs_previous_min"] for row in rows} == {None}, "one repeat"


def test_a_gain_has_the_interval_of_its_pairs_and_may_be_a_tie() -> None:
    rates = {**RATES, "uint8": 340.0, "threads": 500.0}
    records = [
        rung("cumulative", step, rate * (0.8 if step == "uint8" and repeat == 1 else 1), repeat)
        for repeat in range(3)
        for step, rate in rates.items()
    ]
    rows = ablation.tables(records)[ablation.CSV]
    uint8 = next(row for row in rows if row["step"] == "uint8")
    ends = [uint8[f"speedup_vs_previous_{end}"] for end in ("min", "max")]
    assert ends == pytest.approx([0.8 * 340 / 330, 340 / 330])


def test_a_disturbed_pass_is_in_no_gain() -> None:
    records = [rung("cumulative", "baseline", 50.0, repeat) for repeat in range(3)]
    others = (0.0, 0.98, 0.0)
    records += [
        rung("cumulative", "libjpeg_turbo", rate, repeat, others[repeat])
        for repeat, rate in enumerate((100.0, 40.0, 110.0))
    ]
    row = ablation.tables(records)[ablation.CSV][1]
    gain = [row[f"speedup_vs_previous{end}"] for end in ("", "_min", "_max")]
    assert gain == [2.1, 2.0, 2.2]
    assert (row["calm_repeats"], row["img_per_s_min"]) == (2, 100.0)
    assert "2 by 0.98 cores" in str(row["reason"])


def test_passes_are_long_enough_in_the_papers_profile(grid: Grid) -> None:
    cells = grid("ablation")
    assert {cell.repeat for cell in cells} == {0, 1, 2}
    assert {(cell.params["seconds"], cell.params["min_images"]) for cell in cells} == {(3, 200)}


def test_without_the_baseline_there_is_no_gain() -> None:
    (row,) = ablation.tables([rung("cumulative", "threads", 500.0)])[ablation.CSV]
    assert (row["img_per_s"], row["speedup_vs_baseline"]) == (500.0, None)
