"""The wheel as pip installs it from the package index, and the study on other versions.

`pytest -m network tests/test_install.py`: a quarter of an hour, and 12 GB to download.
"""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from experiments import contents
from experiments.onnx import cells as onnx
from harness.table import ok_rows, read_table
from tests import making
from tests.conftest import ROOT, run_command
from tests.test_environment import required
from tests.test_wheel import build_wheel
from wallclock.errors import DISTRIBUTION

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(600)]
#: What the study needs and the index has no wheels of.
_SOURCES = "antlr4-python3-runtime,PyTurboJPEG"
#: Bytes of all that pip installs, 10^6 each.
_MOST_MB = 100
_REQUIRED = [
    Requirement(line)
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
]

#: Every way of the loader on the images of a folder: pixels to a file, everything else as JSON.
_SMOKE = """
import json, sys
from pathlib import Path
import numpy
from wallclock import Workers, decode, open_images

folder = Path(sys.argv[1])
paths = sorted(folder.glob("*.*"))
with open_images(folder, 224, 4) as batches:
    listed = list(batches)
pixels = numpy.concatenate([batch.images for batch in listed])
numpy.save(sys.argv[2], pixels)
ids = [name for batch in listed for name in batch.ids]
good = [folder / name for name in ids]
for image, path in zip(pixels, good, strict=True):
    assert numpy.array_equal(image, decode(path))
with open_images(iter(good), 224, 3, workers=1) as batches:
    assert numpy.array_equal(pixels, [image for batch in batches for image in batch.images.copy()])
with open_images(good, 224, 2, workers=Workers(2, processes=2)) as batches:
    assert numpy.array_equal(pixels, [image for batch in batches for image in batch.images.copy()])
shapes = {}
for geometry in ("shortest:96,crop:64x48,bicubic,rotate", "longest:64,bilinear", "original"):
    try:
        with open_images(good, preprocess=geometry) as batches:
            shapes[geometry] = [list(batch.images.shape) for batch in batches]
    except Exception as error:
        shapes[geometry] = type(error).__name__
with open_images(good, 64, output="float32", shuffle=True, seed=3) as batches:
    (batch,) = batches
    state = batches.state_dict()
shapes["float32"] = [str(batch.images.dtype), list(batch.images.shape), list(batch.positions)]
failures = [[name for name in failure.values()] for batch in listed for failure in batch.failures]
print(json.dumps({"ids": ids, "shapes": shapes, "failures": failures, "state": state}))
"""


def install(folder: Path, *requirements: str) -> Path:
    """A new environment with these; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", *requirements]
    subprocess.run(command, check=True, capture_output=True)
    return python


def run(python: Path, *words: str, cwd: Path) -> str:
    """What a program prints, which must not fail or warn."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    return run_command(str(python), "-W", "error", *words, cwd=cwd, env=env).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_wheel(tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def clean(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install` brings today, and no extra."""
    return install(tmp_path_factory.mktemp("clean") / "venv", wheel)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """JPEGs that are decoded at each scale, other formats, and two that are damaged."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number, size in enumerate(((256, 200), (700, 601), (1500, 1203), (2600, 2500))):
        data = making.jpeg(*size, number, quality=92, progressive=number == 1)
        (folder / f"{number}.jpg").write_bytes(data)
    for kind in ("PNG", "WEBP", "TIFF", "BMP"):
        data = making.encode(making.picture(300, 260, 9), kind)
        (folder / f"other.{kind.lower()}").write_bytes(data)
    (folder / "cut.jpg").write_bytes(making.jpeg(300, 200)[:-300])
    (folder / "empty.jpg").write_bytes(b"")
    return folder


def test_what_is_installed(clean: Path, tmp_path: Path) -> None:
    program = """
import json
from importlib import metadata
sizes = {}
for distribution in metadata.distributions():
    files = [distribution.locate_file(file) for file in distribution.files or ()]
    sizes[distribution.metadata["Name"].lower()] = sum(
        file.stat().st_size for file in files if file.exists()
    )
print(json.dumps(sizes))
"""
    sizes = json.loads(run(clean, "-c", program, cwd=tmp_path))
    assert set(sizes) == {DISTRIBUTION, *(requirement.name for requirement in _REQUIRED)}
    assert min(sizes.values()) > 50_000
    assert sum(sizes.values()) < _MOST_MB * 1_000_000, sizes


@pytest.mark.parametrize(
    ("statement", "libraries"),
    [
        ("import wallclock", set()),
        ("from wallclock import open_images", {"numpy", "PIL", "simplejpeg"}),
    ],
)
def test_what_an_import_imports(
    clean: Path, tmp_path: Path, statement: str, libraries: set[str]
) -> None:
    """The standard library, wallclock, and what is named."""
    program = f"""
import sys
before = set(sys.modules)
{statement}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
loaded -= sys.stdlib_module_names | {{"cython_runtime"}}
print(*(name for name in loaded if not name.startswith("_")))
"""
    assert set(run(clean, "-c", program, cwd=tmp_path).split()) == {"wallclock", *libraries}


def lowest_of(requirement: Requirement) -> Version:
    """Of a range `name>=version`."""
    (lowest,) = requirement.specifier
    assert lowest.operator == ">="
    return Version(lowest.version)


def versions_in(python: Path, cwd: Path) -> dict[str, Version]:
    """Of what is required, as installed."""
    program = (
        "import sys; from importlib import metadata; print(*map(metadata.version, sys.argv[1:]))"
    )
    names = [requirement.name for requirement in _REQUIRED]
    versions = run(python, "-c", program, *names, cwd=cwd).split()
    return dict(zip(names, map(Version, versions), strict=True))


def test_both_ends_of_the_ranges(wheel: str, images: Path, tmp_path: Path) -> None:
    """The loader does the same with the oldest and the newest libraries, but for rounding."""
    lowest_pins = [f"{range_.name}=={lowest_of(range_)}" for range_ in _REQUIRED]
    results = []
    for end, pins in {"lowest": lowest_pins, "highest": []}.items():
        python = install(tmp_path / end, wheel, *pins)
        for range_ in _REQUIRED:
            is_lowest = versions_in(python, tmp_path)[range_.name] == lowest_of(range_)
            assert is_lowest == (end == "lowest"), range_
        words = (str(images), str(tmp_path / f"{end}.npy"))
        results.append(json.loads(run(python, "-c", _SMOKE, *words, cwd=tmp_path)))
    lowest, highest = results
    assert lowest["ids"] == highest["ids"]
    assert len(lowest["ids"]) == 8
    assert [failure[:2] for failure in lowest["failures"]] == [
        failure[:2] for failure in highest["failures"]
    ]
    assert lowest["shapes"] == highest["shapes"]
    assert lowest["state"] == highest["state"]
    pixels = [np.load(tmp_path / f"{end}.npy").astype(int) for end in ("lowest", "highest")]
    assert np.abs(pixels[0] - pixels[1]).max() <= 3


# --- the study ------------------------------------------------------------------------------------


@pytest.fixture(params=["paper", "oldest"])
def study(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An environment of the paper's own versions, or of the oldest in range: 6 GB, then removed."""
    requirements = ["-r", str(ROOT / "requirements" / "paper.lock")]
    if request.param == "oldest":
        ranges = required("suite")
        bounded = [range_ for range_ in ranges if str(range_.specifier).startswith(">=")]
        pins = [f"{range_.name}=={lowest_of(range_)}" for range_ in bounded]
        requirements = [*map(str, ranges), *pins]
    folder = tmp_path / "venv"
    yield install(folder, *requirements, "--no-binary", _SOURCES)
    shutil.rmtree(folder)


@pytest.mark.timeout(3600)
def test_the_study_on_other_versions(study: Path, tmp_path: Path) -> None:
    names = ",".join((*contents.QUICK, "onnx", "opt", "workers"))
    command = [str(study), str(ROOT / "code" / "main.py"), "--quick", "--experiment", names]
    done = subprocess.run(
        [*command, "repeats=1", f"out={tmp_path / 'data'}", f"figures={tmp_path / 'figures'}"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}/code:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in (*contents.QUICK, "opt", "workers"):
        for csv in contents.load(name).TABLES:
            assert ok_rows(read_table(tmp_path / "data" / csv)), csv
    runtimes = ok_rows(read_table(tmp_path / "data" / onnx.CSV))
    assert {row["runtime"] for row in runtimes} >= {"pytorch", "onnxruntime-cpu", "openvino"}
