"""The structure, read from the source: who imports whom, who touches which files."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from experiments import contents
from harness import provenance
from tests.conftest import ON_PATH, ROOT, run_command

#: Package → the packages that it may import, functions included. `main` may import all.
PACKAGES = {
    "wallclock": (),
    "harness": ("wallclock",),
    "experiments": ("wallclock", "harness"),
    "paper": ("wallclock", "harness", "experiments"),
}
#: Inside the product: part → the parts that it may import beside itself and the ground.
PRODUCT = {
    "stages": (),
    "fetch": (),
    "check": ("stages",),
    "predict": (),
    "loader": ("stages", "fetch", "check"),
    "infer": ("stages", "loader"),
    "job": ("stages", "fetch", "check", "loader", "infer", "predict"),
    "service": ("stages", "fetch", "check", "loader", "infer", "job"),
    "trace": ("predict", "stages", "loader"),
    "demo": ("loader",),
    "doctor": ("stages",),
}
#: Modules of the product that belong to no part: they import each other and nothing else.
GROUND = {
    *("budget", "checkpoint", "clock", "constraints", "documents", "errors", "files", "formats"),
    "isobmff",
    "jpeg",
    "machine",
    "native",
    "options",
    "orientation",
    "outside",
    "preprocess",
    "processor",
    "progress",
    "recipe",
    "summary",
    "tiff",
    "words",
}
#: A traced program loads this package under another name: its modules import each other relatively.
TRACED = ROOT / "code" / "wallclock" / "trace" / "inside"


def module_of(path: Path) -> str:
    base = ROOT / "code" if path.is_relative_to(ROOT / "code") else ROOT
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


#: Every module of the project by its dotted name.
SOURCES = {
    module_of(path): path
    for folder in ("code", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


@cache
def nodes(path: Path) -> Sequence[ast.AST]:
    """The syntax tree of a file, flat."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module
            if path.is_relative_to(TRACED) and node.level == 1:
                module = ".".join(filter(None, (module_of(TRACED / "__init__.py"), module)))
            else:
                assert node.level == 0, f"{path}: a relative import"
            assert module is not None
            for alias in node.names:
                name = f"{module}.{alias.name}"
                yield name if name in SOURCES else module


def package_of(module: str) -> str:
    return module.partition(".")[0]


def part_of(module: str) -> str:
    """Of a module of the product: its part, or "" for the ground."""
    name = module.split(".")[1]
    return "" if name in GROUND else name


def ours(path: Path) -> set[str]:
    return {name for name in imported(path) if package_of(name) in {*PACKAGES, "main"}}


def importers(*libraries: str) -> set[str]:
    """The modules that import one of the libraries."""
    return {
        module
        for module, path in SOURCES.items()
        if any(package_of(name) in libraries for name in imported(path))
    }


def strings(path: Path) -> Iterator[str]:
    """Every string in a file's code; docstrings are not code."""
    prose = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def test_packages_point_one_way() -> None:
    wrong = {
        (module, name)
        for module, path in SOURCES.items()
        if module != "main"
        for name in ours(path)
        if package_of(name) not in {package_of(module), *PACKAGES[package_of(module)]}
    }
    assert wrong == set()


INSIDE = [name for name in SOURCES if name.startswith("wallclock.") and name[-8:] != "__main__"]


def test_parts_of_the_product_point_one_way() -> None:
    wrong = {
        (module, name)
        for module in INSIDE
        for name in ours(SOURCES[module])
        if name.startswith("wallclock.")
        and part_of(name) not in {"", part_of(module), *PRODUCT.get(part_of(module), ())}
    }
    assert wrong == set()


def test_the_service_uses_the_jobs_settings_alone() -> None:
    used = {
        name
        for module in INSIDE
        if part_of(module) == "service"
        for name in ours(SOURCES[module])
        if name.startswith("wallclock.job")
    }
    assert used == {"wallclock.job.settings"}


def test_no_circles() -> None:
    """Of modules, imports inside functions included."""
    graph = {module: ours(path) & SOURCES.keys() for module, path in SOURCES.items()}
    while leaves := [name for name, names in graph.items() if not names & graph.keys() - {name}]:
        for name in leaves:
            del graph[name]
    assert not graph, f"circles among {sorted(graph)}"


def test_imports_are_read() -> None:
    """The other tests would pass on an empty list: these imports must be seen."""
    assert "wallclock.stages.decode" in ours(SOURCES["wallclock.loader.prepare"])
    assert "torch" in set(imported(SOURCES["harness.engines.assemble"]))
    assert part_of("wallclock.job.runner.process") == "job"
    assert "record.json" in set(strings(SOURCES["harness.records"]))


def test_stages_never_import_each_other() -> None:
    """A stage is a module or package of `stages`; `pixels` is their common type."""
    stage_of = {
        name: name.split(".")[2] for name in SOURCES if name.startswith("wallclock.stages.")
    }
    wrong = {
        (module, name)
        for module, stage in stage_of.items()
        for name in ours(SOURCES[module]) & stage_of.keys()
        if stage_of[name] not in (stage, "pixels")
    }
    assert wrong == set()


def test_what_goes_into_a_traced_program() -> None:
    """The standard library and itself; torch only where the program has imported it."""
    for path in TRACED.rglob("*.py"):
        others = {
            name
            for name in imported(path)
            if not name.startswith("wallclock.trace.inside")
            and package_of(name) not in sys.stdlib_module_names
        }
        assert others <= ({"torch"} if path.name == "torch_calls.py" else set()), path


APPLICATION = ("hydra", "omegaconf", "harness", "experiments", "paper")


@pytest.mark.parametrize(
    ("modules", "libraries"),
    [
        ("paper.session harness.runner paper.settings", ("torch", "transformers")),
        # What a user's own code imports.
        ("wallclock wallclock.loader.images wallclock.predict.advice", (*APPLICATION, "torch")),
        ("wallclock.constraints wallclock.recipe", APPLICATION),
        ("wallclock.predict.advice", ("numpy", "mlsysim")),
        ("wallclock.job wallclock.__main__", (*APPLICATION, "torch", "cv2", "boto3", "ray")),
        ("paper.resolve", ("hydra", "harness.runner", "harness.worker")),
        ("paper.settings", ("harness.runner",)),
        ("experiments.contents", ("torch", "transformers", "matplotlib")),
        ("wallclock.stages.decode", ("numpy", "PIL", "cv2", "torch", "simplejpeg", "turbojpeg")),
    ],
)
def test_never_loaded(modules: str, libraries: tuple[str, ...]) -> None:
    """A fresh process that imports the modules has loaded none of the libraries."""
    statement = "; ".join(f"import {module}" for module in modules.split())
    program = f"import sys; {statement}; print([n for n in {libraries!r} if n in sys.modules])"
    done = run_command(sys.executable, "-c", program, env=ON_PATH)
    assert done.stdout.strip() == "[]"


def test_only_records_touches_run_records() -> None:
    files = {"record.json", "samples.json", "spans.json", "COMPLETE"}
    touching = {
        module
        for module, path in SOURCES.items()
        if any(name in text for text in strings(path) for name in files)
    }
    assert touching == {"harness.records"}


def test_only_main_and_settings_know_hydra() -> None:
    assert importers("hydra") == {"main", "paper.settings"}
    assert importers("omegaconf") == {"main", "paper.settings"}


def test_who_draws() -> None:
    """Of an experiment its figures alone: measuring and filling tables need no matplotlib."""
    drawing = importers("matplotlib")
    figures = {module for module in drawing if re.fullmatch(r"experiments\.\w+\.figure\w*", module)}
    assert figures == set(contents.figure_modules())
    others = ("harness.drawing.", "paper.")
    assert all(module.startswith(others) for module in drawing - figures), drawing


def test_tables_need_neither_torch_nor_images() -> None:
    cells = {module for module in SOURCES if re.fullmatch(r"experiments\.(\w+|\w+\.cells)", module)}
    paper = {module for module in SOURCES if package_of(module) == "paper"}
    assert not (cells | paper) & importers("torch", "PIL", "simplejpeg", "cv2")


@pytest.mark.parametrize("folder", ["code", "experiments"])
def test_no_name_of_the_standard_library(folder: str) -> None:
    """On the import path such a name would shadow the library's, elsewhere it would confuse."""
    names = {path.stem for path in (ROOT / folder).rglob("*.py")} & sys.stdlib_module_names
    assert names <= {"__init__", "__main__"}


def test_code_is_no_package() -> None:
    assert not (ROOT / "code" / "__init__.py").exists()


def test_no_file_is_too_long_to_read() -> None:
    lines = {name: path.read_text("utf-8").count("\n") for name, path in SOURCES.items()}
    assert {name: n for name, n in lines.items() if n > 450} == {}


def test_every_experiment_has_its_settings() -> None:
    names = {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")}
    assert {*contents.ORDER, *contents.ON_REQUEST} == names
    folders = {path.parent.name for path in (ROOT / "experiments").glob("*/*.py")}
    assert folders == names


def test_versions_are_those_of_the_lock() -> None:
    lock = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([\w.-]+)==", lock, flags=re.MULTILINE))
    versions = provenance.versions()
    assert {"torch", "numpy", "pillow", "simplejpeg", "onnxruntime-gpu"} <= versions.keys()
    bundled = {f"libjpeg-turbo in {name}" for name in ("pillow", "opencv", "simplejpeg")}
    assert versions.keys() - pinned == {"libturbojpeg", "native module", *bundled}
    for name in versions.keys() & pinned:
        assert versions[name] == metadata.version(name)


def test_one_module_makes_clients_of_s3() -> None:
    """The queue's signatures are boto3's too; its client is not used there."""
    modules = {name for name in importers("boto3") if name.startswith("wallclock.")}
    assert modules == {"wallclock.fetch.s3", "wallclock.service.sqs"}
