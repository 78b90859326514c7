"""What a record's digest covers: the code that its protocol times, and nothing else."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from harness import provenance, records
from harness.protocols import protocol, registry
from harness.spec import Cell
from tests.conftest import ROOT
from wallclock import files
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec, Recipe

PROTOCOLS = sorted(registry.declarations())
MODULES = sorted({declaration.module for declaration in registry.declarations().values()})
#: Imported by a protocol's module and not timed, with the reason; nothing is looked for behind it.
NOT_TIMED = {
    "harness": "registers decoders and runtimes by name",
    "harness.corpora": "holds no code",
    "harness.corpora.abo": "holds no code",
    "harness.corpora.abo.fetch": "downloads images before a run",
    "harness.corpora.abo.store": "downloads images before a run",
    "harness.corpora.image_stats": "measures of the protocol `image_stats`, which covers it",
    "harness.engines": "holds no code",
    "harness.engines.third_party": "loaders that `loading` and `load_n` open, which cover them",
    "harness.export": "metrics for a person who watches",
    "harness.peers": "finds a library, whose version is in the cell's identity",
    "harness.predict": "holds no code",
    "harness.protocols": "holds no code",
    "harness.protocols.gpu_memory": "reads memory before a pass and after it",
    "harness.protocols.registry": "this declaration",
    "harness.provenance": "describes the machine beside the measurement",
    "harness.spec": "describes cells: what matters is in the cell's own digest",
    "harness.testbed": "holds no code",
    "wallclock": "names what is public",
    "wallclock.check": "refuses images when a corpus is listed; who loads covers it",
    "wallclock.checkpoint": "finds files of weights, whose digest is in the record",
    "wallclock.constraints": "checks settings before anything runs",
    "wallclock.fetch": "names what its modules define",
    "wallclock.fetch.retries": "of a network: who reads from one covers all of `fetch`",
    "wallclock.files": "formats of files and digests; sinks and jobs, which write, cover it",
    "wallclock.metrics": "metrics for a person who watches",
    "wallclock.orientation": "experiments take pixels as stored; a job covers it",
    "wallclock.predict": "predictions beside what is measured; a job makes one, and covers it",
    "wallclock.processor": "reads a model's files before anything runs",
    "wallclock.recipe": "describes choices: their values are in the cell's own digest",
    "wallclock.stages": "holds no code",
    "wallclock.stages.augment": "the type of a drawn crop; who crops covers it",
    "wallclock.stages.pixels": "the type of decoded pixels",
    "harness.measures": "PSNR, recall and fits; who compares by them covers it",
    "wallclock.summary": "statistics of what was measured; who compares pixels covers it",
}
#: Run in processes of their own around and as the service.
SERVICE = ["wallclock.service.start", "harness.ladder.mock_module", "harness.testbed.sqs"]
#: Protocol → modules that it imports by name, or runs in a process of their own.
NAMED = {
    "job": ["wallclock.job.start", "wallclock.job.place.here"],
    "cluster": ["harness.systems.ours", "harness.systems.ray_images", "wallclock.job.start"],
    "killed": ["harness.systems.ours", "wallclock.job.start"],
    "scaled": ["harness.systems.ours", "wallclock.job.start"],
    "ladder": SERVICE,
    "redelivery": SERVICE,
    "throughput": ["harness.telemetry", "wallclock.stages.forward.pytorch"],
    "runtime": ["harness.runtimes.ort", "wallclock.stages.forward.pytorch"],
    "loading": ["harness.engines.third_party.spdl", "harness.decoders.opencv"],
}


def path_of(module: str) -> Path | None:
    path = provenance.CODE / module.replace(".", "/")
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run; imports for annotations alone do not."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from statements(child)


@cache
def imported(module: str) -> frozenset[str]:
    """The modules of this checkout that a module imports, anywhere in it, and their packages."""
    path, names = path_of(module), set[str]()
    assert path is not None
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {node.module, *members}
    parts = [name.split(".") for name in names if name.split(".")[0] in ("wallclock", "harness")]
    ancestors = {".".join(words[:n]) for words in parts for n in range(1, len(words) + 1)}
    return frozenset(name for name in ancestors if path_of(name))


def reached(module: str) -> set[str]:
    """All modules that a module imports by way of others, up to those in `NOT_TIMED`."""
    seen, todo = set[str](), [module]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += imported(name) - NOT_TIMED.keys()
    return seen


def covers(timed: tuple[str, ...], module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in timed)


@pytest.mark.parametrize("module", MODULES)
def test_what_a_protocol_imports_is_declared(module: str) -> None:
    """A module that several protocols share is covered by one of them at least."""
    declared = [
        registry.timed_by(name)
        for name, declaration in registry.declarations().items()
        if declaration.module == module
    ]
    missing = {
        name for name in reached(module) if not any(covers(timed, name) for timed in declared)
    }
    assert not missing, f"add them to TIMED of {module}, or here to NOT_TIMED: {sorted(missing)}"


@pytest.mark.parametrize("name", NAMED)
def test_what_is_imported_by_name_is_declared(name: str) -> None:
    """By a process of its own, or when a library is made."""
    modules = {other for module in NAMED[name] for other in reached(module)}
    missing = {other for other in modules if not covers(registry.timed_by(name), other)}
    assert not missing


def test_imports_are_followed() -> None:
    """The test above would pass on an empty set."""
    assert "wallclock.stages.decode.pil" in reached("harness.protocols.ceilings")
    assert "harness.engines.third_party" in imported("harness.engines.loaders")
    roots = [*MODULES, *(module for modules in NAMED.values() for module in modules)]
    every = set().union(*(imported(name) for module in roots for name in reached(module)))
    assert every >= NOT_TIMED.keys(), f"not imported: {sorted(NOT_TIMED.keys() - every)}"


@pytest.mark.parametrize("name", PROTOCOLS)
def test_each_protocol_is_a_function_of_its_module(name: str) -> None:
    assert protocol.find(name).__module__ == registry.module_of(name)
    files = provenance.source_files(registry.timed_by(name))
    assert {"wallclock/errors.py", "harness/protocols/protocol.py"} <= {*files}
    assert ("wallclock/service/logs.py" in files) == (name in ("ladder", "redelivery"))
    if "wallclock/loader/threads.py" in files:
        assert {"wallclock/check.py", "wallclock/jpeg.py"} <= {*files}
    assert not any(file.startswith(("paper/", "experiments/")) for file in files)


def test_every_protocol_is_one_of_an_experiment() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "experiments").glob("*.py")]
    unused = [name for name in PROTOCOLS if not any(f'"{name}"' in text for text in sources)]
    assert unused == []


def test_unknown_protocol() -> None:
    with pytest.raises(UserError, match="no protocol is called 'seriel'; did you mean serial"):
        registry.timed_by("seriel")


def keys() -> dict[str, str]:
    """Protocol → the key of one cell."""
    cells = {name: Cell("x", name, "x", 0, Recipe("x"), None, ModelSpec("x")) for name in PROTOCOLS}
    return {
        name: records.key_of(cell, provenance.identity(registry.timed_by(name)))
        for name, cell in cells.items()
    }


@pytest.mark.parametrize(
    ("edited", "protocols"),
    [
        ("wallclock/service/logs.py", {"ladder", "redelivery"}),
        ("wallclock/errors.py", set(PROTOCOLS)),
        ("harness/engines/third_party/spdl.py", {"loading", "load_n"}),
        ("harness/protocols/storage.py", {"storage", "forms"}),
        ("harness/engines/training.py", {"train_step", "train"}),
        ("wallclock/metrics.py", {"ladder", "redelivery"}),
        ("wallclock/recipe.py", set()),
        ("harness/runner.py", set()),
    ],
)
def test_an_edit_changes_the_keys_of_what_times_it(
    edited: str, protocols: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, digest = keys(), files.sha256_file

    def edited_digest(path: Path) -> str:
        changed = path == provenance.CODE / edited
        return "edited" if changed else digest(path)

    monkeypatch.setattr(provenance, "sha256_file", edited_digest)
    provenance.code_digest.cache_clear()
    try:
        after = keys()
    finally:
        provenance.code_digest.cache_clear()
    assert {name for name in PROTOCOLS if after[name] != before[name]} == protocols
    assert (provenance.CODE / edited).is_file()


def test_a_decoder_that_is_edited_changes_no_service() -> None:
    covered = {
        name
        for name in PROTOCOLS
        if "harness/decoders/opencv.py" in provenance.source_files(registry.timed_by(name))
    }
    assert {"decode", "agreement", "serial", "throughput"} <= covered
    assert not covered & {"job", "ladder", "redelivery", "serialization", "storage", "train_step"}


def test_a_module_that_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no module wallclock\.gone"):
        provenance.source_files(["wallclock.gone"])
