"""`what-limits-my-job.html`: its script against the predictor, its numbers against the table."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py_mini_racer import MiniRacer

from experiments.frontier import CSV, LABELS
from harness import provenance
from paper import limits_page
from paper.csvfile import read_table
from paper.pages import read_asset
from wallclock.predict import JobSetup, Machine, Pipeline, StageCosts, StepTime

REFERENCE = provenance.ROOT / "data" / "reference" / "amd-epyc-2-cores"
ROWS = read_table(REFERENCE / CSV)
SCRIPT = str(read_asset("limits.js"))


def jobs() -> Iterator[dict[str, Any]]:
    grid = itertools.product(
        (2.5e-4, 4.3e-3, 2.9e-2),  # load_s
        ("threads", "dataloader"),
        (1, 2, 16, 96),  # cores
        (7_200, 305_000),  # bytes
        (2e6, 1.25e8, 2e9),  # bytes_per_s
        (1e-4, 3.8e-3, 0.11),  # forward_s
        (False, True),  # on_cpu
    )
    names = ("load_s", "engine", "cores", "bytes", "bytes_per_s", "forward_s", "on_cpu")
    return (dict(zip(names, values, strict=True)) for values in grid)


def predicted(job: dict[str, Any]) -> tuple[float, str]:
    pipeline = Pipeline(
        StageCosts(decode_s=job["load_s"], image_bytes=job["bytes"]),
        StepTime(0.0, job["forward_s"]),
        Machine(
            cores=job["cores"],
            storage_bytes_per_s=job["bytes_per_s"],
            shares_cores=job["on_cpu"],
            forward_cores=job["cores"] if job["on_cpu"] else 1,
            gpu=not job["on_cpu"],
        ),
        JobSetup(workers=job["cores"], batch_size=64, engine=job["engine"]),
    )
    return pipeline.rate(), pipeline.bottleneck()


def test_the_script_computes_what_the_predictor_computes() -> None:
    cases = list(jobs())
    engine = MiniRacer()
    engine.eval(SCRIPT)
    answers = json.loads(str(engine.eval(f"JSON.stringify({json.dumps(cases)}.map(predict))")))
    bottlenecks, limits = set(), set()
    for case, answer in zip(cases, answers, strict=True):
        rate, bottleneck = predicted(case)
        assert answer["img_per_s"] == pytest.approx(rate, rel=1e-9), case
        assert answer["bottleneck"] == bottleneck, case
        bottlenecks.add(bottleneck)
        limits.add(answer["limit"])
        # What the page calls the limit has the rate that it shows.
        assert answer["supply"][answer["limit"]] == pytest.approx(rate, rel=1e-9), case
    assert bottlenecks == {"storage", "transform", "accelerator", "main"}
    assert limits == {"storage", "transform", "accelerator", "cores"}


def test_a_loader_costs_its_cores_over_its_measured_rate() -> None:
    data = limits_page.page_data(ROWS)
    assert len(data["kinds"]) == 3
    for kind in data["kinds"]:
        assert [loader["ours"] for loader in kind["loaders"]].count(True) == 1
        for loader in kind["loaders"]:
            slowest, median, fastest = loader["img_per_s"]
            assert slowest <= median <= fastest
            assert loader["load_s"] == loader["cores"] / median
    originals = next(kind for kind in data["kinds"] if kind["kb"] > 100)
    names = [loader["name"] for loader in originals["loaders"]]
    assert names[0] == "DataLoader + PIL"
    assert names[-1] == "wallclock (threads)"


def test_the_page_is_one_file_without_network(tmp_path: Path) -> None:
    rendering = limits_page.render(REFERENCE, tmp_path)
    page = rendering.paths[0].read_text(encoding="utf-8")
    embedded = re.search('<script type="application/json" id="data">(.*?)</script>', page)
    assert embedded
    assert json.loads(embedded[1])["kinds"]
    assert not re.search(r'(src|href)="(?!data:|https://www\.nvidia|#)', page)
    assert "default-src 'none'" in page
    fields = set(re.findall(r'name="(\w+)"', page)) - {"viewport"}
    used = set(re.findall(r"form\.(\w+)\.", SCRIPT)) | set(re.findall(r'value\("(\w+)"\)', SCRIPT))
    assert used - {"elements"} <= fields


def test_without_a_measured_frontier_there_is_no_page(tmp_path: Path) -> None:
    rendering = limits_page.render(tmp_path, tmp_path)
    assert rendering.paths == ()
    assert CSV in rendering.skipped


def test_a_loader_that_is_not_faithful_is_no_alternative() -> None:
    failing = [row | {"level": "close"} if row["system"] == "thread-pool" else row for row in ROWS]
    data = limits_page.page_data(failing)
    names = {loader["name"] for kind in data["kinds"] for loader in kind["loaders"]}
    assert LABELS["thread-pool"] not in names
    passing = limits_page.page_data(ROWS)
    names = {loader["name"] for kind in passing["kinds"] for loader in kind["loaders"]}
    assert LABELS["thread-pool"] in names
