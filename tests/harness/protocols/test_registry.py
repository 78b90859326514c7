"""Protocols by name, and what a record's digest covers."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from harness import provenance, records
from harness.protocols import protocol, registry
from harness.spec import Cell
from tests.conftest import ROOT
from tests.test_layers import GROUND
from wallclock import files
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec, Recipe

PROTOCOLS = sorted(registry.PROTOCOLS)
digest = cache(files.sha256_file)
#: Of the product's modules in no package, those that no timed loop runs.
NOT_TIMED = {"checkpoint", "constraints", "documents", "metrics", "pretrained"}
NOT_TIMED |= {"processor", "progress", "recipe"}


def test_unknown_protocol() -> None:
    with pytest.raises(UserError, match="no protocol is called 'seriel'; did you mean serial"):
        registry.timed_by("seriel")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_each_protocol_is_a_function_of_its_module(name: str) -> None:
    assert protocol.find(name).__module__ == registry.module_of(name)


def test_every_protocol_is_one_of_an_experiment() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "experiments").glob("*.py")]
    unused = [name for name in PROTOCOLS if not any(f'"{name}"' in text for text in sources)]
    assert unused == []


def test_every_module_of_the_products_ground_is_timed_or_not() -> None:
    timed = {name.removeprefix("wallclock.") for name in registry.TIMED}
    assert timed & GROUND == GROUND - NOT_TIMED


def test_a_module_that_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no module wallclock\.gone"):
        provenance.source_files(["wallclock.gone"])


def keys() -> dict[str, str]:
    """Protocol → the key of one cell."""
    cells = {name: Cell("x", name, "x", 0, Recipe("x"), None, ModelSpec("x")) for name in PROTOCOLS}
    return {
        name: records.key_of(cell, provenance.identity(registry.timed_by(name)))
        for name, cell in cells.items()
    }


@pytest.fixture(autouse=True)
def _fresh_digests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(provenance, "sha256_file", digest)
    yield
    provenance.code_digest.cache_clear()


@pytest.mark.parametrize(
    ("edited", "protocols"),
    [
        ("wallclock/loader/ring.py", set(PROTOCOLS)),
        ("wallclock/errors.py", set(PROTOCOLS)),
        ("harness/engines/serial.py", set(PROTOCOLS)),
        ("harness/engines/third_party/spdl.py", {"loading"}),
        ("harness/protocols/train.py", {"train_step", "train"}),
        ("harness/protocols/nms.py", {"nms"}),
        ("wallclock/service/logs.py", {"ladder", "redelivery"}),
        ("wallclock/trace/run.py", set()),
        ("wallclock/recipe.py", set()),
        ("harness/runner.py", set()),
        ("paper/check.py", set()),
    ],
)
def test_an_edit_changes_the_keys_of_what_times_it(
    edited: str, protocols: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys()

    def edited_digest(path: Path) -> str:
        changed = path == provenance.CODE / edited
        return "edited" if changed else digest(path)

    monkeypatch.setattr(provenance, "sha256_file", edited_digest)
    provenance.code_digest.cache_clear()
    after = keys()
    assert {name for name in PROTOCOLS if after[name] != before[name]} == protocols
    assert (provenance.CODE / edited).is_file()
