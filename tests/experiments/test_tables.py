"""What holds for every experiment, and for its tables on the records of the fixture run."""

from dataclasses import replace
from typing import Any

import pytest

from experiments import common, contents
from harness.records import Record
from tests.fixture_run import fixture_records
from wallclock.clock import STAGES
from wallclock.recipe import ModelSpec

#: Experiments that the fixture run has records of.
IN_FIXTURE = [name for name in contents.ORDER if fixture_records(name)]
MEASURED = ("_s", "_ms", "_share", "img_per_s", "_per_s", "_speedup", "_mib", "_gib", "repeats")
#: Columns whose lowest and highest repeat are beside them.
LIMITED = {*common.LIMITED, "wall_s", "mean_ms", "write_s", "vectors_per_s", "model_load_s"}
LIMITED |= {"peak_gpu_mem_gib", "gpu_util_mean"}
#: Experiment → protocol of its comparison, where the values are, values that fail its gate.
GATED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "decoders": ("agreement", "agreement", {"max_abs_diff": 200}),
    "serial": ("fidelity", "fidelity", {"psnr_db": 1.0}),
    "opt": ("fidelity", "fidelity", {"psnr_db": 24.9}),
    "fast": ("fidelity", "fidelity", {"psnr_gain_vs_paper_db": -0.1}),
    "steps": ("fidelity", "fidelity", {"psnr_db": 1.0}),
    "workers": ("fidelity", "fidelity", {"psnr_db": 1.0}),
}


def tables(name: str, records: list[Record]) -> list[tuple[str, dict[str, object]]]:
    filled = contents.load(name).tables(records)
    return [(csv, row) for csv, rows in filled.items() for row in rows]


def no_numbers(row: dict[str, object]) -> bool:
    return not any(row[name] for name in row if name.endswith(MEASURED) and name != "service_ms")


def repeated(name: str, *factors: int) -> list[Record]:
    """The first repeat of every cell, once for each factor, with samples that much longer."""
    records = []
    for record in fixture_records(name):
        for repeat, factor in enumerate(factors if record.cell.repeat == 0 else ()):
            samples = {key: [factor * ns for ns in record.samples[key]] for key in record.samples}
            cell = replace(record.cell, repeat=repeat)
            values = dict(record.values)
            if "img_per_s" in values:
                values["img_per_s"] /= factor
            records.append(replace(record, cell=cell, samples=samples, values=values))
    return records


@pytest.mark.parametrize(
    "name", ["cpu", "decoders", "frontier", "onnx", "serial", "serialization", "t4"]
)
def test_a_row_is_the_median_repeat_with_the_spread(name: str) -> None:
    rows = tables(name, repeated(name, 3, 1, 2))
    fast, median, slow = (tables(name, repeated(name, factor)) for factor in (1, 2, 3))
    for index, (csv, row) in enumerate(rows):
        if row.get("status") != "ok" or "repeats" not in row:
            continue
        assert row["repeats"] == 3
        for column, value in row.items():
            spread_of, _, end = column.rpartition("_")
            if spread_of in LIMITED and end in ("min", "max"):
                ends: list[Any] = [table[index][1][spread_of] for table in (fast, slow)]
                expected = None if None in ends else (min if end == "min" else max)(ends)
                assert value == pytest.approx(expected), column
            elif spread_of.startswith("speedup_") and end in ("min", "max"):
                # All rows of a repeat are slower by one factor: its pairs have the same ratio.
                assert value == pytest.approx(row[spread_of]), column
            elif column not in ("repeats", "calm_repeats"):
                assert value == pytest.approx(median[index][1][column]), (csv, column)


@pytest.mark.parametrize("name", ["serial", "cpu"])
def test_of_two_passes_the_slower_is_shown(name: str) -> None:
    """Never the faster: a failed repeat must not make a row better."""
    both, slow = (tables(name, repeated(name, *n)) for n in ((3, 1), (3,)))
    assert [row["wall_s"] for _, row in both] == [row["wall_s"] for _, row in slow]


@pytest.mark.parametrize("name", ["serial", "cpu", "t4", "workers"])
def test_stages_and_rates_add_up(name: str) -> None:
    for csv, row in tables(name, fixture_records(name)):
        if csv.startswith("timeline"):
            continue
        values = {key: float(str(value)) for key, value in row.items() if isinstance(value, float)}
        wall, stages = values["wall_s"], [values[f"{stage}_s"] for stage in STAGES]
        total = sum(stages) if "wait_s" in row else wall
        assert sum(stages) + values.get("unattributed_s", 0) == pytest.approx(total)
        assert [values[f"{s}_share"] * total for s in STAGES] == pytest.approx(stages)
        assert values["img_per_s"] * wall == pytest.approx(row["n_images"])
        assert values["seconds_per_100k"] * values["img_per_s"] == pytest.approx(1e5)
        assert values.get("wait_s", 0) == pytest.approx(values.get("wait_share", 0) * wall)


def test_limits_are_of_the_quantity_in_each_repeat() -> None:
    """A slow pass with little decoding: its share is the lowest, its wall time the highest."""
    (record,) = (r for r in repeated("serial", 1) if r.cell.label == "pil-original")
    n = record.values["n_embedded"]
    passes = []
    for decode_s, wall_s in ((4, 10), (6, 12), (5, 20)):
        samples = {**{stage: [0] for stage in STAGES}, "resize": [1_000_000_000]}
        samples |= {"decode": [decode_s * 1_000_000_000], "wall": [wall_s * 1_000_000_000]}
        passes.append(replace(record, samples=samples))
    ((_, row),) = tables("serial", passes)
    expected = {
        "decode_share": (6 / 12, 5 / 20, 6 / 12),
        "decode_s": (6, 4, 6),
        "decode_resize_share": (7 / 12, 6 / 20, 7 / 12),
        "wall_s": (12, 10, 20),
        "img_per_s": (n / 12, n / 20, n / 10),
        "seconds_per_100k": (12e5 / n, 10e5 / n, 20e5 / n),
    }
    for name, values in expected.items():
        cells = [row[f"{name}{end}"] for end in ("", "_min", "_max")]
        assert cells == pytest.approx(values), name


def test_price_and_telemetry_of_a_pass() -> None:
    (record,) = fixture_records("t4")
    sampled = {"cpu_cores": [1.0, 3.0], "throttle_reasons": ["power cap", "heat"]}
    values, environment = {**record.values, "telemetry": sampled}, {**record.environment}
    environment["cost"] = {"usd_per_hour": 3.6}
    environment["machine"] = {"cpu": "CPU", "cores": 4, "gpus": [{"name": "Tesla T4"}]}
    model = ModelSpec("null", "none", service_ms=8.0, service_ms_per_image=2.0)
    record = replace(record, cell=replace(record.cell, model=model))
    (_, row), *_ = tables("t4", [replace(record, values=values, environment=environment)])
    assert (row["weights"], row["service_ms"], row["batch_size"]) == ("none", 72.0, 32)
    assert row["device"] == "CPU (4 cores, with Tesla T4)"
    assert row["usd_per_million"] == pytest.approx(1e3 / float(str(row["img_per_s"])))
    assert (row["cpu_cores_used"], row["throttle_reasons"]) == (2.0, "power cap; heat")
    assert (row["gpu_power_w"], row["gate"], row["dct_margin"]) == (None, "reference", None)


@pytest.mark.parametrize("name", IN_FIXTURE)
def test_rows_have_the_declared_columns(name: str) -> None:
    records = [
        record for source in contents.record_sources(name) for record in fixture_records(source)
    ]
    rows = tables(name, records)
    assert rows
    for csv, row in rows:
        assert set(row) == set(contents.load(name).TABLES[csv])
        assert row.get("status") != "error"


@pytest.mark.parametrize("name", [name for name in IN_FIXTURE if name != "predict"])
def test_a_failed_cell_is_a_row_with_the_reason(name: str) -> None:
    failed = [
        replace(record, status="error", reason="killed", samples={}, values={}, spans=())
        for record in fixture_records(name)
    ]
    rows = [row for _, row in tables(name, failed)]
    assert rows
    assert {(row["status"], row["reason"]) for row in rows} == {("error", "killed")}
    assert all(map(no_numbers, rows))


@pytest.mark.parametrize("name", ["serial", "decoders", "serialization", "profiler"])
def test_failed_repeats_are_visible_beside_what_the_others_measured(name: str) -> None:
    records = [
        replace(record, status="error", reason="killed") if record.cell.repeat else record
        for record in fixture_records(name)
    ]
    planned = 1 + max(record.cell.repeat for record in records)
    for _, row in tables(name, records):
        assert (row["status"], row["reason"]) == (f"1 of {planned}", "killed")
        assert row["repeats"] == 1


@pytest.mark.parametrize("name", GATED)
def test_output_that_fails_its_gate_gets_no_time(name: str) -> None:
    protocol, key, bad = GATED[name]
    records = []
    for record in fixture_records(name):
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
    records = [record for record in fixture_records(name) if record.cell.protocol != protocol]
    gates = {row["gate"] for _, row in tables(name, records) if row.get("gate")}
    assert "not checked" in gates
    assert "passed" not in gates


@pytest.mark.parametrize(
    ("values", "pretrained", "random"),
    [
        ({"psnr_db": 25.0, "cosine": 0.9}, "passed", "passed"),
        ({"psnr_db": 24.9, "cosine": 0.9}, "failed", "failed"),
        ({"psnr_db": 25.0, "cosine": 0.89}, "failed", "passed"),
        ({"psnr_db": 30.0}, "passed", "passed"),
        ({"unavailable": "no library"}, "not checked", "not checked"),
    ],
)
def test_fidelity_gate(values: dict[str, Any], pretrained: str, random: str) -> None:
    """Under random weights pixels alone decide, and no cosine is shown."""
    for weights, gate in (("pretrained", pretrained), ("random", random)):
        limits = {"min_psnr_db": 25.0, "min_cosine": 0.9}
        row = common.judge_fidelity(values, limits, weights)
        assert row["gate"] == gate
        assert row.get("cosine") == (values.get("cosine") if weights == "pretrained" else None)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"sink_cosine_min": 0.99995}, ""),
        ({"sink_cosine_min": 0.998}, "cosine 0.998000 with the serial FP32 vectors"),
        ({"sink_faults": ["2 missing", "1 not finite"]}, "2 missing, 1 not finite"),
    ],
)
@pytest.mark.parametrize("name", ["t4", "opt", "steps"])
def test_a_pass_that_wrote_wrong_vectors_gets_no_time(
    name: str, wrong: dict[str, Any], reason: str
) -> None:
    """One repeat is enough, of the reference recipe too."""
    records, good = [], {"sink_faults": [], "sink_checked": 9, "sink_max_abs_diff": 0.01}
    for record in fixture_records(name):
        if record.cell.protocol == "throughput":
            fp16 = replace(record.cell, recipe=replace(record.cell.recipe, dtype="fp16"))
            values = {**record.values, **good, "sink_cosine_min": 1.0}
            records.append(replace(record, cell=fp16, values=values))
            record = replace(records[-1], values=values | wrong)
        records.append(record)
    for row in (row for csv, row in tables(name, records) if not csv.startswith("timeline")):
        assert (row["sink_checked"], row["sink_max_abs_diff"]) == (18, 0.01)
        assert row["sink_cosine_min"] == wrong.get("sink_cosine_min", 1.0)
        assert (row["gate"] == "failed", row["status"] == "gate failed") == (bool(reason),) * 2
        assert reason in str(row["reason"])
        assert not reason or no_numbers(row)


@pytest.mark.parametrize(
    ("loss", "gain", "gate"), [(1, 0, "passed"), (1.1, 0, "failed"), (1, -1, "failed")]
)
def test_fidelity_gate_of_an_antialiased_recipe(loss: float, gain: float, gate: str) -> None:
    values = {"psnr_db": 40.0, "psnr_loss_vs_area_db": loss, "psnr_gain_vs_paper_db": gain}
    limits = {"min_psnr_db": 25, "min_cosine": 0.9, "max_loss_db": 1, "not_below_paper": True}
    assert common.judge_fidelity(values, limits, "random")["gate"] == gate


def test_only_100k_images_are_measured_as_such() -> None:
    assert common.rate_columns(100_000, 500.0)["seconds_per_100k_origin"] == "measured"
    scaled = common.rate_columns(10, 0.5)
    assert (scaled["seconds_per_100k"], scaled["seconds_per_100k_origin"]) == (5000, "extrapolated")
