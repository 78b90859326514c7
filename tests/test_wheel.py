"""The wheel, installed where there is no checkout: the product and nothing else, and it works."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

import wallclock
from harness.measures import psnr_db
from tests import making
from tests.conftest import ROOT, run_command, short_run
from wallclock.errors import DISTRIBUTION, VERSION

pytestmark = pytest.mark.slow
VERSION_LINE = f"wallclock {VERSION}\n"
SITE = Path(sysconfig.get_path("purelib"))


def build_wheel(folder: Path, **env: str) -> Path:
    """Built from a copy: setuptools would take what an earlier build has left in the checkout."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "code", source / "code", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run(command, check=True, cwd=folder, capture_output=True, env={**os.environ, **env})
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


class Environment:
    """A virtual environment with the wheel, and these distributions of this one."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = folder / "lib" / version / "site-packages"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.site)

    def add_all(self) -> None:
        """All that is installed here; its editable install of the checkout is not followed."""
        (self.site / "here.pth").write_text(f"{SITE}\n", encoding="utf-8")

    def add(self, names: set[str]) -> None:
        """Some distributions, linked."""
        for name in names:
            files = metadata.files(name) or []
            for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
                link = self.site / top
                if not link.exists():
                    link.symlink_to(SITE / top)

    def run(self, *words: str, cwd: Path, status: int = 0) -> str:
        command = (str(self.python), "-W", "error", *words)
        env = {"PATH": "/usr/bin:/bin", "HOME": str(cwd)}
        done = run_command(*command, cwd=cwd, env=env, status=status)
        return done.stdout + done.stderr


def closure(names: set[str]) -> set[str]:
    """Distributions and all that they need here."""
    needed: set[str] = set()
    while names:
        name = names.pop()
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another platform
            continue
        needed.add(name)
        for text in requirements:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                names |= {requirement.name} - needed
    return needed


@pytest.fixture(scope="module")
def everything(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("all") / "venv", wheel)
    environment.add_all()
    return environment


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What `pip install` brings without an extra."""
    environment = Environment(tmp_path_factory.mktemp("base") / "venv", wheel)
    environment.add(closure(required_by(wheel)))
    return environment


def required_by(wheel: Path, condition: str = "") -> set[str]:
    """Of the wheel without an extra; or by the extra of this condition."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode()
    pattern = rf"^Requires-Dist: ([\w.-]+)[^;\n]*{re.escape(condition)}$"
    return set(re.findall(pattern, lines, flags=re.MULTILINE))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return making.folder(tmp_path / "images", 3)


def test_the_wheel_is_the_product(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.partition("/")[0] for name in names}
    assert "wallclock/trace/inside/bootstrap/sitecustomize.py" in names
    assert "wallclock/native/_native.abi3.so" in names
    assert not [name for name in names if name.endswith((".c", ".h"))]
    name, version, python, abi = wheel.name.split("-")[:4]
    assert (python, abi) == ("cp311", "abi3")
    assert tops == {"wallclock", f"{name}-{version}.dist-info"}
    assert name == DISTRIBUTION.replace("-", "_")


def test_every_module_can_be_imported(everything: Environment, tmp_path: Path) -> None:
    program = """
import pkgutil, wallclock
names = [info.name for info in pkgutil.walk_packages(wallclock.__path__, "wallclock.")]
for name in names:
    if not name.endswith("__main__"):
        __import__(name)
print(wallclock.__file__, len(names))
"""
    file, count = everything.run("-c", program, cwd=tmp_path).split()
    assert file.startswith(str(everything.site))
    assert int(count) > 60


def test_the_command(everything: Environment, images: Path) -> None:
    command, cwd = ("-m", "wallclock"), images.parent
    assert "wallclock embed photos/" in everything.run(*command, "--help", cwd=cwd)
    assert everything.run(*command, "--version", cwd=cwd) == VERSION_LINE
    assert "native module  compiled, " in everything.run(*command, "doctor", cwd=cwd)
    printed = everything.run(*command, "embed", "images", "vectors", "model=null", cwd=cwd)
    assert "3 vectors, 0 failed, 0 skipped in 1 part" in printed
    assert (cwd / "vectors" / "part-00000.parquet").is_file()


def test_without_a_compiler(images: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", build_wheel(tmp_path, CC="false"))
    environment.add_all()
    cwd = images.parent
    printed = environment.run("-m", "wallclock", "doctor", cwd=cwd)
    assert "native module  not compiled; libjpeg-turbo and Pillow decode instead\n" in printed
    assert "0.jpg" in environment.run("-c", loop_of_the_readme(), cwd=cwd)


def loop_of_the_readme() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    (loop,) = [block for block in blocks if "open_images" in block]
    return str(loop)


@pytest.mark.parametrize("name", ["everything", "base"])
def test_the_loop_of_the_readme(name: str, images: Path, request: pytest.FixtureRequest) -> None:
    environment: Environment = request.getfixturevalue(name)
    printed = environment.run("-c", loop_of_the_readme(), cwd=images.parent)
    assert printed == "['0.jpg', '1.jpg', '2.jpg'] (3, 224, 224, 3)\n"


def test_the_loader_needs_no_torch(base: Environment, images: Path) -> None:
    """Pillow resizes in its place, with the same pixels but for rounding."""
    (images / "large.jpg").write_bytes(making.jpeg(900, 700, seed=5))
    program = """
import sys, numpy, wallclock
for geometry in ("squash", "shortest:96,crop:64,bicubic,rotate"):
    (batch,) = wallclock.open_images("images", None, preprocess=geometry)
    numpy.save(geometry.partition(":")[0], batch.images)
assert "torch" not in sys.modules
wallclock.decode("images/large.jpg", 64)
try:
    wallclock.open_images("images", output="torch")
except wallclock.errors.UserError as error:
    print(error)
"""
    printed = base.run("-c", program, cwd=images.parent)
    assert "pip install 'wallclock-images[torch]'" in printed
    assert printed.count("\n") == 1
    for geometry in ("squash", "shortest:96,crop:64,bicubic,rotate"):
        without = np.load(images.parent / f"{geometry.partition(':')[0]}.npy")
        (batch,) = wallclock.open_images(images, None, preprocess=geometry)
        for ours, theirs in zip(batch.images, without, strict=True):
            assert psnr_db(ours, theirs) >= 48


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("embed", "images", "vectors", "model=null"), "embed"),
        (("verify", "vectors"), "embed"),
        (("serve", "http://127.0.0.1:1/queue"), "embed,queue"),
        (("trace", "-m", "this"), "trace"),
        (("demo",), "torch"),
    ],
)
def test_what_an_extra_lacks_is_one_line(
    base: Environment, images: Path, words: tuple[str, ...], extra: str
) -> None:
    printed = base.run("-m", "wallclock", *words, cwd=images.parent, status=1)
    assert f"pip install '{DISTRIBUTION}[{extra}]'" in printed
    assert printed.count("\n") == 1
    assert printed.startswith("wallclock: ")


def test_the_trace_needs_rich_alone(wheel: Path, images: Path) -> None:
    assert required_by(wheel, '; extra == "trace"') == {"rich"}
    environment = Environment(images.parent / "venv", wheel)
    environment.add(closure({*required_by(wheel), "rich"}))
    (images.parent / "program.py").write_text(
        "from pathlib import Path\nfrom PIL import Image\n"
        "for path in Path('images').iterdir():\n    Image.open(path).resize((8, 8))\n"
    )
    command = ("-m", "wallclock", "trace")
    printed = environment.run(*command, "--try", "--json", "a", "program.py", cwd=images.parent)
    assert "JPEG" in printed
    assert "Tried wallclock.open_images on 3 files" in printed
    printed = environment.run(*command, "--html", "b", "program.py", cwd=images.parent, status=1)
    assert printed.count("\n") == 1
    assert "pip install jinja2" in printed


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ("'images', output='torch,float32'", f"pip install '{DISTRIBUTION}[torch]'"),
        ("'images', augment=True", f"pip install '{DISTRIBUTION}[augment]'"),
        ("['http://127.0.0.1:1/a.jpg']", f"pip install '{DISTRIBUTION}[s3]'"),
        ("['s3://bucket/a.jpg']", f"pip install '{DISTRIBUTION}[s3]'"),
        ("'s3://bucket/prefix'", f"pip install '{DISTRIBUTION}[s3]'"),
        ("'a.parquet'", f"pip install '{DISTRIBUTION}[embed]'"),
    ],
)
def test_what_a_loop_lacks_is_one_line(
    base: Environment, images: Path, arguments: str, fix: str
) -> None:
    program = f"""
import wallclock
from wallclock.errors import Unavailable, UserError
try:
    with wallclock.open_images({arguments}) as batches:
        next(batches)
except (Unavailable, UserError) as error:
    print(error)
"""
    printed = base.run("-c", program, cwd=images.parent)
    assert printed.endswith(f": {fix}\n")
    assert printed.count("\n") == 1


def test_help_and_doctor_need_no_extra(base: Environment, tmp_path: Path) -> None:
    for command in ("demo", "embed", "verify", "serve", "trace"):
        assert "usage:" in base.run("-m", "wallclock", command, "--help", cwd=tmp_path)
    assert base.run("-m", "wallclock", "--version", cwd=tmp_path) == VERSION_LINE
    printed = base.run("-m", "wallclock", "doctor", cwd=tmp_path)
    assert "native module  " in printed
    assert "pil (libjpeg-turbo" in printed
    for extra in ("torch", "embed", "queue"):
        assert f"→ pip install '{DISTRIBUTION}[{extra}]'\n" in printed


def test_main_runs_without_the_setup_script(wheel: Path, tmp_path: Path) -> None:
    """Any environment with the lock's packages and the project installed runs the suite."""
    environment = Environment(tmp_path / "venv", wheel)
    environment.add_all()
    images = making.folder(tmp_path / "images", 1)
    words = ["--quick", "--experiment", "serial", "--n", "1"]
    words += ["corpus=folder", f"corpus.path={images}", *short_run(tmp_path)]
    printed = environment.run(str(ROOT / "code" / "main.py"), *words, cwd=tmp_path)
    assert "cells measured" in printed
    assert (tmp_path / "data" / "claims.csv").is_file()
