"""The settings of a job that others decide: the last diagnosis."""

import csv
from pathlib import Path

import pytest

from experiments import diagnose
from wallclock.errors import UserError
from wallclock.job.settings import JobSettings

TABLE = "diagnosis-predictions.csv"


def test_as_diagnosed(tmp_path: Path) -> None:
    """The whole stack of fixes counts; what the user sets counts more."""
    columns = ("kind", "batch_size", "dtype")
    assert set(columns) <= set(diagnose.TABLES[TABLE])
    rows = (("present", 32, "fp32"), ("alone", 8, "fp32"), ("stacked", 48, "fp32"))
    with (tmp_path / TABLE).open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows, ("stacked", 48, "bf16"), ("check", 8, "fp32")])
    settings = {"recipe": "diagnosed", "diagnosis": str(tmp_path), "device": "cpu"}
    recipe = JobSettings(**settings).resolved_recipe("cpu")  # type: ignore[arg-type]
    assert (recipe.batch_size, recipe.dtype, recipe.decoder) == (48, "bf16", "simplejpeg")
    recipe = JobSettings(**settings, batch=7, dtype="fp32").resolved_recipe("cpu")  # type: ignore[arg-type]
    assert (recipe.batch_size, recipe.dtype) == (7, "fp32")


def test_no_diagnosis_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^recipe=diagnosed: there is no .*make diagnose"):
        JobSettings(recipe="diagnosed", diagnosis=str(tmp_path)).resolved_recipe("cpu")
