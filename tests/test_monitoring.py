"""deploy/monitoring/: rules and dashboard use metrics that exist; Prometheus itself takes them."""

import json
import re
import shutil

import pytest
import yaml

from tests.conftest import ROOT, run_command
from tests.wallclock.service.toy import Toy
from wallclock.service.callbacks import CallbackSender
from wallclock.service.client import Downloader
from wallclock.service.intake import Intake
from wallclock.service.leases import Bound
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
    downloads, callbacks = Downloader(ServiceSettings()), CallbackSender(ServiceSettings())
    ServicePipeline(Toy(), intake, downloads, callbacks, ServiceSettings(), metrics)
    return {sample.name for family in metrics.registry.collect() for sample in family.samples}


def test_every_metric_exists() -> None:
    expressions = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
    expressions += [rule["expr"] for rule in RULES]
    words = re.findall(r"\bwallclock[_:][\w:]+", " ".join(expressions))
    assert {*words} <= service_metrics() | {rule["record"] for rule in RULES if "record" in rule}
    assert any(word.startswith("wallclock_service_") for word in words)


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
        assert "SUCCESS" in run_command("promtool", *map(str, arguments)).stdout
