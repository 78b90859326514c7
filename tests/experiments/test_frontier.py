"""`frontier`: its grid, and its table."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments import frontier
from experiments._sentences import MeasuredRows
from harness import provenance
from harness.plan import Plan
from harness.records import Record
from harness.spec import Cell
from tests import making
from tests.experiments import made

CLOSE = {"psnr_db": 43.0, "psnr_loss_vs_area_db": 0.4, "psnr_gain_vs_paper_db": 3.0, "cosine": 1.0}
LIMITS = {"min_psnr_db": 25.0, "min_cosine": 0.9, "max_loss_db": 1.0, "not_below_paper": True}


def loaded(system: str, rate: float, variant: str = "", **fidelity: float) -> Record:
    """A loader that took ten seconds."""
    values = {"n_loaded": round(rate * 10), **({"fidelity": CLOSE | fidelity} if fidelity else {})}
    names = {"system": system, "variant": "", "setup": variant, "subset": "all"}
    params = {**names, "fidelity": LIMITS}
    return made.record("frontier", "loading", f"{system}-{variant}", values, params)


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
    """The second measures the best of the first, in passes of its own; the table has these."""
    options = mixed.settings.experiments["frontier"]
    options = {**options, "systems": ["pil-draft", "ours", "dali"]}

    def measured(cell: Cell) -> Record:
        system, variant = cell.params["system"], cell.params["variant"]
        rate = {"1": 120.0, "2": 110.0}.get(variant, 100.0)
        if "search" not in cell.params:
            rate -= 50
        loss_db = 9.0 if variant == "1" else 0.0
        record = loaded(system, rate, psnr_loss_vs_area_db=loss_db)
        return replace(record, cell=cell, status="unavailable" if system == "dali" else "ok")

    first = [measured(cell) for cell in frontier.cells(mixed, options)]
    assert {(r.cell.repeat, r.cell.params["subset"]) for r in first} == {(0, "all")}
    assert all(r.cell.params["seconds"] == 1 for r in first)
    full = [measured(cell) for cell in frontier.second_round(mixed, options, first)]
    assert len({(r.cell.label, r.cell.images, r.cell.repeat) for r in full}) == 3 * 2 * 4
    assert len(full) == 3 * 2 * 4
    assert {r.cell.params["seconds"] for r in full} == {3}
    assert {r.cell.params["variant"] for r in full} == {"", "2"}
    for records, rates, repeats in ((first, {100.0, 110.0}, 1), ([*first, *full], {50.0, 60.0}, 3)):
        rows = frontier.tables(records)[frontier.CSV]
        assert {(row["system"], row["status"]) for row in rows} == {
            ("pil-draft", "ok"),
            ("ours", "ok"),
            ("dali", "unavailable"),
        }
        available = [row for row in rows if row["status"] == "ok"]
        assert {row["img_per_s"] for row in available} == rates
        assert {row["repeats"] for row in available} == {repeats}
        draft = next(row for row in available if row["system"] == "pil-draft")
        assert "1: 120 img/s, gate failed" in str(draft["other_variants"])
    assert not frontier.second_round(mixed, options, [r for r in first if not r.ok])


def test_grid_splits_a_folder_by_jpeg_process(mixed: Plan) -> None:
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


def test_ratios_are_of_medians() -> None:
    records = [loaded("pil", 50.0, cosine=1.0), loaded("pil", 40.0), loaded("pil", 60.0)]
    records += [loaded("paper", 150.0, "8"), loaded("paper", 200.0, "cores")]
    records.append(loaded("ours", 500.0, psnr_loss_vs_area_db=1.5))
    pil, paper, ours = frontier.tables(records)[frontier.CSV]
    rates = (pil["img_per_s"], pil["img_per_s_min"], pil["img_per_s_max"], pil["repeats"])
    assert rates == (50.0, 40.0, 60.0, 3)
    assert (pil["gate"], pil["psnr_db"]) == ("passed", 43.0)
    others = "8: 150 img/s, gate not checked"
    assert (paper["variant"], paper["other_variants"]) == ("cores", others)
    assert paper["gate"] == "not checked"
    assert ours["speedup_vs_next"] == 10.0
    assert pil["speedup_vs_next"] is None
    assert (ours["speedup_vs_pil"], ours["speedup_vs_paper"]) == (10.0, 2.5)
    assert (ours["gate"], ours["status"], ours["img_per_s"]) == ("failed", "ok", 500.0)


def test_our_crop_is_nobodys_rival(mixed: Plan) -> None:
    """Its geometry is another one; the row has it as the loader named it."""
    options = mixed.settings.experiments["frontier"]
    options = {**options, "systems": ["ours", "ours-crop"], "all_variants": False}
    geometry = "shortest:256,crop:224x224,bicubic"
    planned = {cell.recipe.name: cell.recipe for cell in frontier.cells(mixed, options)}
    assert planned["ours-crop"] == replace(planned["ours"], name="ours-crop", preprocess=geometry)
    crop = loaded("ours-crop", 900.0, cosine=1.0)
    ran = {**crop.values, "ran": {"preprocess": geometry}}
    records = [loaded("ours", 500.0, cosine=1.0), replace(crop, values=ran)]
    records.append(loaded("pil", 50.0, cosine=1.0))
    ours, crop_row, pil = frontier.tables(records)[frontier.CSV]
    assert [row["preprocess"] for row in (ours, crop_row, pil)] == ["squash", geometry, "squash"]
    assert (ours["speedup_vs_next"], pil["speedup_vs_next"]) == (10.0, 0.1)
    assert crop_row["gate"] == "passed"
    assert crop_row["speedup_vs_next"] is crop_row["speedup_vs_pil"] is None
    rows = [{name: str(cell) for name, cell in row.items()} for row in (ours, crop_row, pil)]
    text = frontier.sentence(MeasuredRows(lambda _: rows))
    assert "10.0× the next fastest whose pixels pass (DataLoader + PIL)" in text
    assert "with DINOv2's crop 1.80× its rate without" in text


def test_the_row_is_the_fastest_variant_that_passes() -> None:
    records = [
        loaded("pil-draft", 300.0, "1", psnr_loss_vs_area_db=9.0),
        loaded("pil-draft", 200.0, "1.25", cosine=1.0),
        loaded("pil-draft", 100.0, "2", cosine=1.0),
        loaded("dali", 150.0, cosine=1.0),
    ]
    draft, dali = frontier.tables(records)[frontier.CSV]
    assert (draft["variant"], draft["img_per_s"], draft["gate"]) == ("1.25", 200.0, "passed")
    others = "1: 300 img/s, gate failed; 2: 100 img/s, gate passed"
    assert draft["other_variants"] == others
    assert (draft["speedup_vs_next"], dali["speedup_vs_next"]) == (200 / 150, 0.75)
