"""The settings of a job that others decide: the recipe that a diagnosis left in a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from wallclock.errors import UserError
from wallclock.job.recipe_file import FIELDS, can_run
from wallclock.job.settings import JobSettings

FOUND: dict[str, Any] = {
    "format": 1,
    "device": "cpu",
    "fix": "bf16 forward pass",
    "speedup": 1.936,
    "measured": True,
    "recipe": {"decoder": "pil", "dct_scale": "full", "batch_size": 48, "dtype": "bf16"},
}


def settings(tmp_path: Path, content: Any, **others: Any) -> JobSettings:
    path = tmp_path / "recipe.json"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return JobSettings(recipe=str(path), device="cpu", **others)


def changed(**fields: Any) -> dict[str, Any]:
    return {**FOUND, "recipe": {**FOUND["recipe"], **fields}}


def test_a_recipe_from_a_file(tmp_path: Path) -> None:
    """What the file leaves out is as in `fast`; what the user sets counts more."""
    recipe = settings(tmp_path, FOUND).resolved_recipe("cpu")
    assert (recipe.batch_size, recipe.dtype, recipe.decoder) == (48, "bf16", "pil")
    assert (recipe.resizer, recipe.engine, recipe.device) == ("torch", "threads", "cpu")
    recipe = settings(tmp_path, FOUND, batch=7, dtype="fp32", workers=3).resolved_recipe("cpu")
    assert (recipe.batch_size, recipe.dtype, recipe.workers) == (7, "fp32", 3)


def test_the_job_says_which_recipe_it_takes(tmp_path: Path) -> None:
    job = settings(tmp_path, FOUND, model="null")
    (note,) = job.resolved("cpu").notes
    assert note == (
        f"recipe={tmp_path}/recipe.json: bf16 forward pass, measured as 1.94 times as fast as the "
        "recipe that was diagnosed"
    )
    assert JobSettings(model="null", device="cpu").resolved("cpu").notes == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[1]", "not a recipe of make diagnose"),
        ({**FOUND, "format": 2}, "not a recipe of make diagnose"),
        ({**FOUND, "recipe": 3}, "not a recipe of make diagnose"),
        ({**FOUND, "device": "cuda"}, "found for device=cuda, and this job runs on cpu"),
        (changed(threads=2), "a job has no field threads; valid: decoder, resizer"),
        (changed(engine="dataloader"), "engine='dataloader': a job can run threads"),
        (changed(decoder="turbojpeg"), "decoder='turbojpeg': a job can run simplejpeg, pil"),
        (changed(dtype=["bf16"]), "dtype=.* a job can run fp32"),
        (changed(batch_size=0), "batch_size=0: give a whole number"),
        (changed(workers=True), "workers=True: give a whole number"),
    ],
)
def test_a_file_that_a_job_cannot_run_is_one_line(content: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words) as caught:
        settings(tmp_path, content).resolved_recipe("cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["diagnosed", "fsat", "/no/such/file.json", "."])
def test_no_such_recipe_names_the_others(name: str) -> None:
    with pytest.raises(UserError, match=r"^recipe=.*no such recipe.*fast, pillow.*make diagnose"):
        JobSettings(recipe=name, device="cpu").resolved_recipe("cpu")


def test_fields_are_of_a_recipe() -> None:
    from dataclasses import fields

    from wallclock.recipe import Recipe

    assert set(FIELDS) <= {field.name for field in fields(Recipe)}
    assert can_run({"decoder": "simplejpeg", "workers": 2})
    assert not can_run({"decoder": "simplejpeg", "workers": 0})
