"""scripts/recompute.py: the ratios of frontier.csv from the raw records, without the project."""

import csv
import subprocess
import sys

from tests.conftest import ROOT

REFERENCE = ROOT / "data" / "reference" / "amd-epyc-2-cores"


def test_it_finds_the_ratios_of_the_table() -> None:
    script = ROOT / "scripts" / "recompute.py"
    command = [sys.executable, "-I", str(script), str(REFERENCE)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    with (REFERENCE / "frontier.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["subset"] == "all"]
    expected = set()
    for ours in (row for row in rows if row["system"] == "ours" and row["level"] == "faithful"):
        images = ours["folder"] or f"{ours['corpus']} {ours['image_set']}"
        low, middle, high = (ours[f"speedup_vs_next{end}"] for end in ("_min", "", "_max"))
        expected.add(f"{images}: {middle} [{low}-{high}] x {ours['next']}")
    assert expected <= {line.rpartition(", n = ")[0] for line in printed.splitlines()}
