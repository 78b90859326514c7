"""The structure, read from the source: who imports whom, who touches which files, what is timed."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.conftest import ROOT
from wallclock import provenance

_GROUND = "clock constraints summary files errors spec native jpeg thread_counts predict"
#: Lowest first. A module belongs to the longest prefix that fits; imports point down or stay level.
LAYERS = (
    tuple(f"wallclock.{name}" for name in _GROUND.split()),
    tuple(f"wallclock.{name}" for name in ("provenance", "records", "checkpoint", "cuda")),
    ("wallclock.corpus", "wallclock.stages"),
    ("wallclock.engines", "wallclock.images"),
    tuple(f"wallclock.{name}" for name in ("measure", "run", "job", "service", "testbed")),
    ("experiments",),
    ("wallclock.paper",),
    (
        *("wallclock.resolve", "wallclock.settings", "wallclock.session"),
        *("wallclock.drift", "wallclock.compare", "wallclock", "wallclock.__main__", "main"),
    ),
)
RANK = {prefix: rank for rank, layer in enumerate(LAYERS) for prefix in layer}


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
    packages = ("wallclock", "experiments", "main")
    return {name for name in imported(path) if name.split(".")[0] in packages}


def importers(*libraries: str) -> set[str]:
    """The modules that import one of the libraries."""
    return {
        module
        for module, path in SOURCES.items()
        if any(name.split(".")[0] in libraries for name in imported(path))
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
    assert not upward, f"{module} imports {upward} from a layer above"


def test_imports_are_read() -> None:
    """The other tests would pass on an empty list: these imports must be seen."""
    assert "wallclock.stages.decode" in ours(SOURCES["wallclock.engines.pipeline"])
    assert "torch" in set(imported(SOURCES["wallclock.stages.assemble"]))
    assert rank("wallclock.paper.figures.style") > rank("experiments.serial")
    assert rank("experiments.serial") > rank("wallclock.clock")
    assert "record.json" in set(strings(SOURCES["wallclock.records"]))


@pytest.mark.parametrize(
    "module", [name for name in SOURCES if name.startswith("wallclock.stages.")]
)
def test_stages_never_import_each_other(module: str) -> None:
    """A stage is a module or package of `stages`; `pixels` is their common type."""
    names = [name for name in ours(SOURCES[module]) if name.startswith("wallclock.stages.")]
    assert {name.split(".")[2] for name in names} <= {module.split(".")[2], "pixels"}


APPLICATION = ("hydra", "omegaconf", "wallclock.paper", "experiments", "wallclock.run")


@pytest.mark.parametrize(
    ("modules", "libraries"),
    [
        ("session run.runner settings", ("torch", "transformers")),
        # What a user's own code imports.
        ("clock predict corpus.folder corpus.prepare engines.loaders", APPLICATION),
        ("resolve constraints spec", ("hydra", "wallclock.run.runner", "wallclock.run.worker")),
        ("settings", ("wallclock.run.runner",)),
        (
            "job __main__",
            ("hydra", "wallclock.paper", "experiments", "torch", "cv2", "boto3", "ray"),
        ),
        ("stages.decode", ("numpy", "PIL", "cv2", "torch", "simplejpeg", "turbojpeg")),
    ],
)
def test_never_loaded(modules: str, libraries: tuple[str, ...]) -> None:
    """A fresh process that imports the modules has loaded none of the libraries."""
    statement = "; ".join(f"import wallclock.{module}" for module in modules.split())
    program = f"import sys; {statement}; print([n for n in {libraries!r} if n in sys.modules])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
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
    assert importers("hydra") == {"main", "wallclock.settings"}
    # The service's file is read without Hydra, which composes what the suite alone has.
    assert importers("omegaconf") == {"main", "wallclock.settings", "wallclock.__main__"}


def test_only_the_paper_draws() -> None:
    drawing = importers("matplotlib", "pandas")
    assert drawing
    assert all(module.startswith("wallclock.paper") for module in drawing), drawing


@pytest.mark.parametrize("folder", ["code", "experiments"])
def test_no_name_of_the_standard_library(folder: str) -> None:
    """On the import path such a name would shadow the library's, elsewhere it would confuse."""
    names = {path.stem for path in (ROOT / folder).rglob("*.py")} & sys.stdlib_module_names
    assert names <= {"__init__", "__main__"}


def test_code_is_no_package() -> None:
    assert not (ROOT / "code" / "__init__.py").exists()


@pytest.mark.parametrize("module", SOURCES)
def test_no_file_is_too_long_to_read(module: str) -> None:
    assert len(SOURCES[module].read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize(
    "text", ["class Batch:", "class Loader(Protocol):", "CUDAGraph(", "class Inference"]
)
def test_exactly_one(text: str) -> None:
    """One batch, one loader interface, one inference step, one capture of CUDA graphs."""
    places = {
        module: count
        for module, path in SOURCES.items()
        if (count := path.read_text(encoding="utf-8").count(text))
    }
    assert sum(places.values()) == 1, places


def test_experiments_helpers_are_underscored() -> None:
    """Every public module of `experiments` is an experiment, with its file in conf/."""
    modules = {path.stem for path in (ROOT / "experiments").glob("*.py")}
    public = {name for name in modules if not name.startswith("_")}
    assert public == {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")}


# --- what identifies a measurement: the code that it depends on, and the libraries --------------

MEASURED = set(provenance.measured_code(provenance.PACKAGE))

#: Measured code imports these, and no figure depends on them: messages, formats, progress.
NOT_MEASURED = {
    *("constraints", "cuda", "errors", "files", "provenance", "records"),
    *("measure/monitor", "run/progress", "predict/costs", "predict/model", "predict/pool"),
}


def test_measured_code_covers_its_imports() -> None:
    files = {
        module: path.relative_to(provenance.PACKAGE).as_posix()
        for module, path in SOURCES.items()
        if path.is_relative_to(provenance.PACKAGE)
    }
    measured = [SOURCES[module] for module, file in files.items() if file in MEASURED]
    imported = {files[name] for path in measured for name in ours(path)}
    others = {name.removesuffix(".py") for name in imported - MEASURED}
    assert {name for name in others if not name.startswith("corpus/abo/")} == NOT_MEASURED


def test_measured_code_covers_nothing_else() -> None:
    ground = ("checkpoint", "clock", "jpeg", "native", "spec", "summary", "thread_counts")
    alone = {*(f"{name}.py" for name in ground), "images.py", "run/worker.py", "predict/ladder.py"}
    packages = ("corpus/", "stages/", "engines/", "job/", "measure/", "service/", "testbed/")
    assert {name for name in MEASURED if not name.startswith(packages)} == alone
    assert {"corpus/folder.py", "measure/throughput.py", "stages/decode/pil.py"} <= MEASURED
    assert not [name for name in MEASURED if name.startswith(("corpus/abo/", "measure/monitor"))]


def test_versions_are_those_of_the_lock() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([\w.-]+)==", lock, flags=re.MULTILINE))
    versions = provenance.versions()
    assert {"torch", "numpy", "pillow", "simplejpeg", "onnxruntime-gpu"} <= versions.keys()
    bundled = {f"libjpeg-turbo in {name}" for name in ("pillow", "opencv", "simplejpeg")}
    assert versions.keys() - pinned == {"libturbojpeg", *bundled}
    for name in versions.keys() & pinned:
        assert versions[name] == metadata.version(name)
