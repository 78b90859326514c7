"""What holds for every experiment's tables, on the records of the reference run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import experiments
from experiments import _common
from tests.reference import reference_records
from wallclock.records import Record

MEASURED = ("_s", "_ms", "_share", "img_per_s", "_per_s", "_speedup", "_mib", "_gib", "repeats")
#: Experiment → protocol of its comparison, where the values are, values that fail its gate.
GATED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "decoders": ("agreement", "agreement", {"max_abs_diff": 200}),
    "serial": ("fidelity", "fidelity", {"psnr_db": 1.0}),
    "opt": ("fidelity", "fidelity", {"psnr_db": 30.0, "cosine": 0.5}),
    "fast": ("fidelity", "fidelity", {"psnr_gain_vs_paper_db": -0.1}),
    "steps": ("fidelity", "fidelity", {"cosine": 0.5}),
    "workers": ("fidelity", "fidelity", {"psnr_db": 1.0}),
}


def tables(name: str, records: list[Record]) -> list[tuple[str, dict[str, object]]]:
    filled = experiments.load(name).tables(records)
    return [(csv, row) for csv, rows in filled.items() for row in rows]


def no_numbers(row: dict[str, object]) -> bool:
    return not any(row[name] for name in row if name.endswith(MEASURED) and name != "service_ms")


@pytest.mark.parametrize("name", experiments.ORDER)
def test_rows_have_the_declared_columns(name: str) -> None:
    records = [
        record
        for source in experiments.record_sources(name)
        for record in reference_records(source)
    ]
    rows = tables(name, records)
    assert rows
    for csv, row in rows:
        assert set(row) == set(experiments.load(name).TABLES[csv])
        assert row.get("status") != "error"


@pytest.mark.parametrize("name", [name for name in experiments.ORDER if name != "predict"])
def test_a_failed_cell_is_a_row_with_the_reason(name: str) -> None:
    failed = [
        replace(record, status="error", reason="killed", samples={}, values={}, spans=())
        for record in reference_records(name)
    ]
    rows = [row for _, row in tables(name, failed)]
    assert rows
    assert {(row["status"], row["reason"]) for row in rows} == {("error", "killed")}
    assert all(map(no_numbers, rows))


@pytest.mark.parametrize("name", ["serial", "decoders", "serialization", "profiler"])
def test_a_failed_repeat_leaves_the_others(name: str) -> None:
    records = [
        replace(record, status="error", reason="killed") if record.cell.repeat else record
        for record in reference_records(name)
    ]
    for _, row in tables(name, records):
        assert (row["status"], row["repeats"]) == ("ok", 1)


@pytest.mark.parametrize("name", GATED)
def test_output_that_fails_its_gate_gets_no_time(name: str) -> None:
    protocol, key, bad = GATED[name]
    records = []
    for record in reference_records(name):
        if record.cell.protocol == protocol:
            values = {label: value | bad for label, value in record.values[key].items()}
            record = replace(record, values={**record.values, key: values})
        records.append(record)
    rows = [row for _, row in tables(name, records) if "gate" in row and row["gate"] is not None]
    assert {row["gate"] for row in rows} <= {"failed", "reference"}
    failed = [row for row in rows if row["gate"] == "failed"]
    assert failed
    for row in failed:
        assert row["status"] == "gate failed"
        assert "no time counts" in str(row["reason"])
        assert no_numbers(row)


@pytest.mark.parametrize("name", GATED)
def test_without_a_comparison_the_gate_is_not_checked(name: str) -> None:
    protocol = GATED[name][0]
    records = [record for record in reference_records(name) if record.cell.protocol != protocol]
    gates = {row["gate"] for _, row in tables(name, records) if row.get("gate")}
    assert "not checked" in gates
    assert "passed" not in gates


@pytest.mark.parametrize(
    ("values", "gate"),
    [
        ({"psnr_db": 25.0, "cosine": 0.9}, "passed"),
        ({"psnr_db": 24.9, "cosine": 0.9}, "failed"),
        ({"psnr_db": 25.0, "cosine": 0.89}, "failed"),
        ({"psnr_db": 30.0}, "passed"),
        ({"unavailable": "no library"}, "not checked"),
    ],
)
def test_fidelity_gate(values: dict[str, Any], gate: str) -> None:
    row = _common.judge_fidelity(values, {"min_psnr_db": 25.0, "min_cosine": 0.9})
    assert row["gate"] == gate


@pytest.mark.parametrize(
    ("loss", "gain", "gate"), [(1, 0, "passed"), (1.1, 0, "failed"), (1, -1, "failed")]
)
def test_fidelity_gate_of_an_antialiased_recipe(loss: float, gain: float, gate: str) -> None:
    values = {"psnr_db": 40.0, "psnr_loss_vs_area_db": loss, "psnr_gain_vs_paper_db": gain}
    limits = {"min_psnr_db": 25, "min_cosine": 0.9, "max_loss_db": 1, "not_below_paper": True}
    assert _common.judge_fidelity(values, limits)["gate"] == gate


def test_only_100k_images_are_measured_as_such() -> None:
    assert _common.rate_columns(100_000, 500.0)["seconds_per_100k_origin"] == "measured"
    scaled = _common.rate_columns(10, 0.5)
    assert (scaled["seconds_per_100k"], scaled["seconds_per_100k_origin"]) == (5000, "extrapolated")
