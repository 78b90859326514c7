"""The house's rules, read from the source: who imports whom, who touches what."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

#: Lowest first. A module belongs to the longest prefix that fits; imports point down or stay level.
LAYERS = (
    (
        "wallclock",
        *(
            f"wallclock.{name}"
            for name in (
                *("clock", "summary", "files", "errors", "spec", "native"),
                *("thread_counts", "predict"),
            )
        ),
    ),
    ("wallclock.provenance", "wallclock.records", "wallclock.checkpoint"),
    ("wallclock.corpus", "wallclock.stages"),
    ("wallclock.engines",),
    ("wallclock.measure", "wallclock.run"),
    ("experiments",),
    ("wallclock.paper",),
    ("wallclock.settings", "wallclock.session", "wallclock.drift", "main"),
)
RANK = {prefix: rank for rank, layer in enumerate(LAYERS) for prefix in layer}


def sources() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    found = {}
    for path in sorted((ROOT / "code").rglob("*.py")) + sorted(
        (ROOT / "experiments").rglob("*.py")
    ):
        base = ROOT / "code" if path.is_relative_to(ROOT / "code") else ROOT
        parts = list(path.relative_to(base).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


SOURCES = sources()


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in SOURCES else node.module


def rank(module: str) -> int:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in RANK and (length == len(parts) or prefix != "wallclock"):
            return RANK[prefix]
    raise AssertionError(f"{module} is in no layer: add it to LAYERS where it belongs")


def ours(path: Path) -> set[str]:
    return {
        name
        for name in imported(path)
        if name.split(".")[0] in ("wallclock", "experiments", "main")
    }


def strings(path: Path) -> Iterator[str]:
    """Every string in a file's code; docstrings are not code."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


@pytest.mark.parametrize("module", SOURCES)
def test_imports_point_down(module: str) -> None:
    upward = [name for name in ours(SOURCES[module]) if rank(name) > rank(module)]
    assert not upward, f"{module} reaches up to {upward}"


def test_the_reader_of_imports_sees_them() -> None:
    """The tests above and below would pass on an empty list: here is one that must be found."""
    assert "wallclock.stages.decode" in ours(SOURCES["wallclock.engines.pipeline"])
    assert "torch" in set(imported(SOURCES["wallclock.stages.forward.pytorch"]))
    assert (
        rank("wallclock.paper.figures.style") > rank("experiments.serial") > rank("wallclock.clock")
    )
    assert "record.json" in set(strings(SOURCES["wallclock.records"]))


@pytest.mark.parametrize(
    "module", [name for name in SOURCES if name.startswith("wallclock.stages.")]
)
def test_stages_never_import_each_other(module: str) -> None:
    """A stage is a module of `stages`, or a package whose modules belong together; `pixels` is their type."""
    stages = {
        name.split(".")[2] for name in ours(SOURCES[module]) if name.startswith("wallclock.stages.")
    }
    assert stages <= {module.split(".")[2], "pixels"}


@pytest.mark.parametrize(
    "module", ["wallclock.session", "wallclock.run.runner", "wallclock.settings"]
)
def test_the_process_that_plans_and_listens_never_loads_torch(module: str) -> None:
    program = f"import sys, {module}; print([name for name in ('torch', 'transformers') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_only_records_touches_run_records() -> None:
    files = {"record.json", "samples.json", "spans.json", "COMPLETE"}
    touching = {
        module
        for module, path in SOURCES.items()
        if any(name in text for text in strings(path) for name in files)
    }
    assert touching == {"wallclock.records"}


def test_only_main_and_settings_know_hydra() -> None:
    knowing = {
        module
        for module, path in SOURCES.items()
        if any(name.split(".")[0] in ("hydra", "omegaconf") for name in imported(path))
    }
    assert knowing == {"main", "wallclock.settings"}


def test_only_the_paper_draws() -> None:
    drawing = {
        module
        for module, path in SOURCES.items()
        if any(name.split(".")[0] in ("matplotlib", "pandas") for name in imported(path))
    }
    assert drawing
    assert all(module.startswith("wallclock.paper") for module in drawing), drawing


@pytest.mark.parametrize("folder", ["code", "experiments"])
def test_no_importable_module_shadows_the_standard_librarys(folder: str) -> None:
    """What lies directly on the import path; inside the package a name of theirs is only confusing."""
    inside = [
        path for path in (ROOT / folder).rglob("*.py") if path.stem in sys.stdlib_module_names
    ]
    assert not [path for path in inside if path.stem not in ("__init__", "__main__")]


def test_code_itself_is_no_package() -> None:
    assert not (ROOT / "code" / "__init__.py").exists()


@pytest.mark.parametrize("module", SOURCES)
def test_no_file_is_too_long_to_read(module: str) -> None:
    assert len(SOURCES[module].read_text(encoding="utf-8").splitlines()) <= 400
