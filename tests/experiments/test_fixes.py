"""The fixes of a diagnosis: which are offered, and in which order they are stacked."""

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import pytest

from experiments import _fixes, diagnose
from experiments._fixes import Folder, Scenario
from harness import provenance
from harness.corpora.manifest import Item

#: A folder of JPEGs.
JPEGS = Folder(has_jpegs=True)


def rated(**rates: float) -> Any:
    """A rate by what a scenario's recipe changes; of several changes, the product."""

    def rate(scenario: Scenario) -> float:
        recipe = scenario.recipe
        choices = {
            "decode": recipe.decoder != "pil",
            "threads": recipe.engine == "threads",
            "workers": recipe.engine == "dataloader" and recipe.workers == 16,
            "batch": recipe.batch_size != 32,
            "dtype": recipe.dtype == "bf16",
        }
        return prod(rates.get(name, 1.0) for name, changed in choices.items() if changed)

    return rate


def stack_of(options: dict[str, Any], **rates: float) -> list[str]:
    planned = _fixes.scenarios(options, options["recipe"], 16, JPEGS)
    return [scenario.recipe.name for scenario in _fixes.stacked(planned, rated(**rates))]


def test_what_gains_most_is_stacked_first_and_what_gains_nothing_never(
    options: dict[str, Any],
) -> None:
    stack = stack_of(options, decode=2.0, batch=1.2, workers=1.04, dtype=0.4, threads=0.5)
    assert stack[0].startswith("stacked-1-")
    assert stack[1] == "stacked-2-batch"
    assert len(stack) == 2
    assert stack_of(options, dtype=0.3) == []
    assert stack_of(options, batch=1.2) == [], "one fix is no stack"


def test_a_stack_has_the_changes_of_all_before_it(options: dict[str, Any]) -> None:
    planned = _fixes.scenarios(options, options["recipe"], 16, JPEGS)
    stack = _fixes.stacked(planned, rated(batch=1.5, workers=1.3, threads=0.5))
    recipes = [(s.recipe.batch_size, s.recipe.workers) for s in stack]
    assert recipes == [(64, 4), (64, 16)]
    assert stack[1].title == "+ 16 workers"
    assert set(stack[1].stages) > set(stack[0].stages)


def test_arithmetic_that_the_cpu_emulates_is_no_fix(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for flags, offered in (("avx2 avx512f", False), ("avx512_bf16", True), ("amx_bf16", True)):
        machine = {"topology": {"flags": flags}, "cores": 2, "gpus": []}
        monkeypatch.setattr(provenance, "machine", partial(dict, machine))
        assert ("alone-dtype" in names_of(options)) is offered


def fixes_of(options: dict[str, Any], folder: Folder = JPEGS, **changes: Any) -> list[Scenario]:
    weights = changes.pop("weights", "random")
    return _fixes.fixes(options, replace(options["recipe"], **changes), 4, folder, weights)


def names_of(options: dict[str, Any], folder: Folder = JPEGS, **changes: Any) -> list[str]:
    return [fix.recipe.name for fix in fixes_of(options, folder, **changes)]


def test_a_mock_model_has_no_precision(options: dict[str, Any]) -> None:
    assert "alone-dtype" not in names_of(options, weights="none")


def test_a_folder_without_jpegs_gets_no_advice_about_them(options: dict[str, Any]) -> None:
    offered = fixes_of(options, Folder(has_jpegs=False, has_large_images=True))
    assert not any("scale" in fix.title for fix in offered)
    assert offered[-1].title == "thumbnails of 256 px, kept for the next runs"
    assert "DCT" not in _fixes.advice("decode", has_jpegs=False)[0]
    assert "DCT" in _fixes.advice("decode", has_jpegs=True)[0]


def test_a_change_that_is_there_already_is_no_fix(options: dict[str, Any]) -> None:
    offered = names_of(options, workers=4, batch_size=64, dtype="bf16")
    assert offered == ["alone-scaled-decode", "alone-open_images"]


def test_the_loader_is_recipe_fast_on_the_users_device(options: dict[str, Any]) -> None:
    (loader,) = [fix for fix in fixes_of(options) if fix.recipe.name == "alone-open_images"]
    recipe, present = loader.recipe, options["recipe"]
    assert (recipe.engine, recipe.workers, recipe.normalize_on) == ("threads", 4, "device")
    assert (recipe.device, recipe.dtype, recipe.sink) == (
        present.device,
        present.dtype,
        present.sink,
    )


@pytest.mark.parametrize(
    ("n_large", "n_small", "offered"),
    [(30, 30, ["thumbnails"]), (29, 31, []), (49, 0, [])],
    ids=["half", "too few large ones", "too few images"],
)
def test_thumbnails_are_offered_where_they_replace_enough(
    options: dict[str, Any], n_large: int, n_small: int, offered: list[str]
) -> None:
    large = Item("x", "x", 1, 2000, 1000, format="jpeg", process="baseline", components=3)
    sound = [large] * n_large + [replace(large, height=384)] * n_small
    folder = diagnose._folder(options, sound)
    planned = _fixes.scenarios(options, options["recipe"], 4, folder)
    with_copies = [scenario for scenario in planned if scenario.copies]
    assert [scenario.copies for scenario in with_copies] == offered
    assert {scenario.kind for scenario in with_copies} <= {"alone"}
    assert {scenario.copies for scenario in _fixes.loaders(planned)} == {"", *offered}
