"""deploy/monitoring/: rules and dashboard use metrics that exist; Prometheus itself takes them."""

import json
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from harness.provenance import ROOT
from tests.wallclock.service.toy import Toy
from wallclock import metrics as monitor
from wallclock.clock import StageProfiler
from wallclock.service.callbacks import CallbackSender
from wallclock.service.client import Downloader
from wallclock.service.intake import Intake
from wallclock.service.limits import Bound
from wallclock.service.metrics import Metrics
from wallclock.service.pipeline import ServicePipeline
from wallclock.service.settings import ServiceSettings
from wallclock.service.sqs import Queue

FOLDER = ROOT / "deploy" / "monitoring"
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "rules.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="needs Debian's package prometheus, with promtool",
)


PANELS = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))["panels"]


def service_metrics() -> set[str]:
    """Names of the samples that `wallclock serve` exports."""
    metrics = Metrics()
    queue = Queue("http://127.0.0.1:1/0/work", 30)
    intake = Intake(queue, Bound(30, 1, 1), metrics, ServiceSettings())
    intake.export(metrics)
    downloads, callbacks = Downloader(ServiceSettings()), CallbackSender(ServiceSettings())
    ServicePipeline(Toy(), intake, downloads, callbacks, ServiceSettings(), metrics)
    return {sample.name for family in metrics.registry.collect() for sample in family.samples}


def test_every_metric_exists() -> None:
    expressions = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
    expressions += [rule["expr"] for rule in RULES]
    words = re.findall(r"\bwallclock[_:][\w:]+", " ".join(expressions))
    histogram = {f"wallclock_stage_seconds_{part}" for part in ("bucket", "count", "sum")}
    exported = {f"wallclock_{name}" for name in monitor.METRICS} | histogram | service_metrics()
    assert {*words} <= exported | {rule["record"] for rule in RULES if "record" in rule}
    assert any(word.startswith("wallclock_service_") for word in words)


def test_no_panel_covers_another() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS) == 20
    cells = [
        (panel["gridPos"]["x"] + column, panel["gridPos"]["y"] + row)
        for panel in PANELS
        for column in range(panel["gridPos"]["w"])
        for row in range(panel["gridPos"]["h"])
    ]
    assert len({*cells}) == len(cells)
    assert max(column for column, _ in cells) < 24


def test_every_alert_is_tested_both_ways() -> None:
    """That it fires, and that it does not."""
    tests = yaml.safe_load((FOLDER / "rules_test.yml").read_text("utf-8"))["tests"]
    checks = [check for test in tests for check in test["alert_rule_test"]]
    tested = {(check["alertname"], "exp_alerts" in check) for check in checks}
    alerts = {rule["alert"] for rule in RULES if "alert" in rule}
    assert tested == {(alert, fires) for alert in alerts for fires in (True, False)}


@pytest.mark.slow
@needs_prometheus
def test_promtool_accepts_and_tests_the_rules() -> None:
    for arguments in (
        ("check", "config", FOLDER / "prometheus.yml"),
        ("test", "rules", FOLDER / "rules_test.yml"),
    ):
        done = subprocess.run(["promtool", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout


def sixty_times_faster(text: str) -> str:
    """Minutes become seconds, hours minutes, and 15 s a quarter of one."""
    shorter = {"15s": "250ms", "m": "s", "h": "m"}
    text = text.replace("15s", shorter["15s"])
    return re.sub(r"\b(\d+)([mh])\b", lambda hit: hit[1] + shorter[hit[2]], text)


@contextmanager
def prometheus(folder: Path, target_port: int) -> Iterator[str]:
    """Prometheus with our configuration, sixty times faster; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name in ("prometheus.yml", "rules.yml"):
        text = sixty_times_faster((FOLDER / name).read_text("utf-8"))
        (folder / name).write_text(text.replace(":9400", f":{target_port}"), "utf-8")
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command = ["prometheus", *options, f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def query(address: str, path: str) -> Any:
    try:
        with urlopen(f"{address}/api/v1/{path}", timeout=5) as answer:
            return json.load(answer)["data"]
    except URLError:
        return None  # it is still starting


@pytest.mark.slow
@needs_prometheus
def test_an_alert_fires_when_a_job_stalls(tmp_path: Path) -> None:
    """A loop of our profiler: no alert while it works, `WallclockStalled` after it stops."""
    profiler = StageProfiler()
    exporter = monitor.serve(0, monitor.Loop.from_profiler(profiler))

    def work_until(done: Any, limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while not done():
            assert time.monotonic() < end, (tmp_path / "log").read_text("utf-8")[-2000:]
            with profiler.stage("decode"):
                time.sleep(0.01)

    try:
        with prometheus(tmp_path, exporter.port) as address:

            def rate() -> float:
                answer = query(address, "query?query=wallclock:images:rate")
                if not (answer and answer["result"]):
                    return 0.0
                return float(answer["result"][0]["value"][1])

            def firing_alerts() -> set[str]:
                alerts = (query(address, "alerts") or {"alerts": []})["alerts"]
                return {a["labels"]["alertname"] for a in alerts if a["state"] == "firing"}

            work_until(lambda: rate() > 0, limit_s=60)
            since = time.monotonic()
            work_until(lambda: time.monotonic() > since + 8, limit_s=60)
            assert "WallclockStalled" not in firing_alerts()
            end = time.monotonic() + 60
            while "WallclockStalled" not in firing_alerts():
                assert time.monotonic() < end, query(address, "alerts")
                time.sleep(0.2)
    finally:
        exporter.close()
