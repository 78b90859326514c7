"""The package finds its experiments; one is added as CONTRIBUTING says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import experiments
from tests.conftest import ROOT
from wallclock.paper.csvfile import read_table

MODULE = '''
"""Which decoder wins a coin toss?"""

from experiments import _rows
from experiments._cells import cell

CSV = "coin-toss.csv"
TABLES = {CSV: _rows.columns("decoder image_set n_buffers device origin status reason")}


def cells(plan, options):
    corpus = plan.first_slice(options["images"])
    return [
        cell(plan, "toss", "decode", name, plan.recipe(decoder=name), corpus, repeat=repeat)
        for repeat in plan.repeats("toss")
        for name in options["decoders"]
    ]


def tables(records):
    groups = _rows.groups(records, "decode").values()
    return {CSV: [_row(repeats) for repeats in groups]}


def _row(repeats):
    row = _rows.new_row(repeats, TABLES[CSV])
    return row | {"n_buffers": len(repeats[0].samples["decode"])}
'''
OPTIONS = """\
# @package experiment.toss
# python code/main.py --experiment toss
images: {small_256: 2}
decoders: [pil, opencv]
"""


def test_one_module_and_one_yaml_add_an_experiment(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("code", "experiments", "conf", "data/paper"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    (tmp_path / "experiments" / "toss.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "conf" / "experiment" / "toss.yaml").write_text(OPTIONS, encoding="utf-8")
    paths = os.pathsep.join((str(tmp_path / "code"), str(tmp_path)))
    environment = {**os.environ, "PYTHONPATH": paths}

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    order = python("-c", "import experiments; print(*experiments.ORDER)").split()
    assert order == [*experiments.ORDER, "toss"]
    python("code/main.py", "--experiment", "toss", "repeats=2", "model=null", "device=cpu")
    rows = read_table(tmp_path / "data" / "coin-toss.csv")
    assert [(row["decoder"], row["n_buffers"], row["status"]) for row in rows] == [
        ("pil", "2", "ok"),
        ("opencv", "2", "ok"),
    ]


def test_order_is_by_rank_without_those_on_request() -> None:
    assert experiments.ORDER[:3] == ("profiler", "decoders", "serialization")
    assert experiments.ORDER[-2:] == ("predict", "layers")
    assert experiments.ON_REQUEST == ("diagnose",)
    assert experiments.QUICK == ("profiler", "decoders", "serialization", "serial", "cpu")


def test_record_sources() -> None:
    assert experiments.record_sources("predict")[:2] == ("predict", "t4")
    assert experiments.record_sources("serial") == ("serial",)


@pytest.mark.parametrize("name", [*experiments.ORDER, *experiments.ON_REQUEST])
def test_every_table_has_a_constant(name: str) -> None:
    module = vars(experiments.load(name))
    constants = {
        csv
        for constant, value in module.items()
        if constant.endswith(("CSV", "CSVS"))
        for csv in (value.values() if isinstance(value, dict) else [value])
    }
    assert constants == set(module["TABLES"])
