"""A dataset from before a field existed: resumed where the field has its default."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.wallclock.job.conftest import Content, content
from wallclock.errors import UserError
from wallclock.job.identity import identity_of
from wallclock.job.settings import JobSettings
from wallclock.recipe import FAST, ModelSpec

Run = Callable[..., Any]


def forget(out: Path, names: Mapping[str, tuple[str, ...]]) -> None:
    """Take fields out of _dataset.json, and put some in, as another version wrote it."""
    path = out / "_dataset.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    for part, fields in names.items():
        values = about["identity"][part] if part else about["identity"]
        for field in fields:
            del values[field]
    about["identity"].get("recipe", {}).update(engine="threads", augment="none")
    path.write_text(json.dumps(about), encoding="utf-8")


#: At their defaults in a job of the recipe `pillow`.
DEFAULTS = {"recipe": ("dct_margin",), "model": ("pruned",)}


def test_a_field_at_its_default_refuses_no_older_dataset(
    run: Run, reference: Content, tmp_path: Path
) -> None:
    run()
    forget(tmp_path / "out", DEFAULTS)
    assert str(run()).startswith("complete already")
    (tmp_path / "out" / "part-00001.parquet").unlink()
    assert run().tally.images > 0
    assert content(tmp_path / "out") == reference


def test_the_native_module_goes_on_where_the_libraries_were() -> None:
    """And they where it was: the pixels are the same."""
    settings = JobSettings()
    before = replace(FAST, decoder="simplejpeg", resizer="torch")
    identities = [identity_of(settings, recipe, ModelSpec("m")) for recipe in (FAST, before)]
    assert identities[0] == identities[1]
    assert identities[0] != identity_of(settings, replace(FAST, resizer="pil"), ModelSpec("m"))


@pytest.mark.parametrize(
    ("part", "field", "change"),
    [
        ("recipe", "batch_size", "recipe.batch_size was 32, is 4"),
        ("model", "weights", "model.weights was random, is none"),
    ],
)
def test_a_field_at_another_value_refuses_it(
    part: str, field: str, change: str, run: Run, tmp_path: Path
) -> None:
    run()
    forget(tmp_path / "out", {part: (field,)})
    with pytest.raises(UserError) as caught:
        run()
    assert f"holds another job's vectors: {change}; give another OUT" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_dataset_without_a_recipe_is_another_job(run: Run, tmp_path: Path) -> None:
    run()
    forget(tmp_path / "out", {"": ("recipe",)})
    with pytest.raises(UserError, match=r"recipe\.decoder was None, is pil"):
        run()
