"""Programs of every kind under the trace: what is counted, and that nothing else changes."""

import ast
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import making
from tests.conftest import ROOT
from tests.running import run_python
from tests.wallclock.trace.programs import Done, trace, write
from wallclock.trace.record import by_stage

LOOP = """
import io, json, sys
from pathlib import Path
from PIL import Image, ImageOps
from harness.profiler import StageProfiler

profiler = StageProfiler()
for path in sorted(Path(sys.argv[1]).glob("*.*")):
    with profiler.stage("read"):
        data = path.read_bytes() if path.suffix == ".webp" else path
    with profiler.stage("decode"):
        image = Image.open(io.BytesIO(data) if path.suffix == ".webp" else data)
        if path.stem == "draft":
            image.draft("RGB", (100, 75))
        image = image.convert("RGB")
    image = ImageOps.exif_transpose(image)
    with profiler.stage("resize"):
        image = image.resize((32, 24))
image.thumbnail((8, 8))
image.convert("L").save(sys.argv[2])
print(json.dumps(profiler.counts))
"""


def write_images(folder: Path) -> Path:
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.jpg").write_bytes(making.jpeg(400, 300))
    (folder / "draft.jpg").write_bytes(making.jpeg(400, 300))
    (folder / "progressive.jpg").write_bytes(making.jpeg(80, 60, progressive=True))
    (folder / "png.png").write_bytes(making.encode(making.picture(64, 48), "PNG"))
    (folder / "webp.webp").write_bytes(making.encode(making.picture(64, 48), "WEBP"))
    return folder


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("loop")
    images = write_images(folder / "images")
    return trace(write(folder, LOOP), images, folder / "out.png", cwd=folder)


def test_what_a_program_uses(tmp_path: Path) -> None:
    """Its options for workers, how it writes, and where."""
    source = """
    import argparse, io, sys
    from PIL import Image
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", "--workers", type=int, default=4)
    parser.add_argument("--name", default="workers")
    parser.parse_args()
    for level in (9, 9, 1):
        image = Image.new("RGB", (8, 8))
        image.save(io.BytesIO(), "png", compress_level=level)
    image.save("a.webp")
    """
    used = trace(write(tmp_path, source), "-j", "3", cwd=tmp_path).trace.uses
    assert [(use.name, dict(use.settings)) for use in used] == [
        ("option", {"flag": "--workers", "value": "3", "line": "program.py:7"}),
        ("PIL.Image.save", {"format": "PNG", "compress_level": "9", "line": "program.py:10"}),
        ("PIL.Image.save", {"format": "PNG", "compress_level": "1", "line": "program.py:10"}),
        ("PIL.Image.save", {"format": "WEBP", "line": "program.py:11"}),
    ]


def test_counts_are_those_by_hand(loop: Done) -> None:
    counts = json.loads(loop.stdout)
    assert loop.images("read") == counts["read"] == 6
    assert loop.images("decode") == counts["decode"] == 6
    assert loop.images("resize") == counts["resize"] + 1  # and the thumbnail
    assert loop.calls("decode", "PIL.Image.open") == 6
    assert loop.calls("transform", "PIL.ImageOps.exif_transpose") == 6
    # A conversion is a decode right after the opening alone.
    assert loop.calls("decode", "PIL.Image.convert") == 6
    assert loop.calls("transform", "PIL.Image.convert") == 1
    assert loop.calls("serialize", "PIL.Image.save") == 1
    assert loop.trace.processes[0].cpu_s is not None


def test_sizes_of_images(loop: Done, tmp_path: Path) -> None:
    sizes = {
        (kind.format, kind.source, kind.made): (kind.count, kind.n_bytes)
        for kind in loop.trace.images
    }
    photo = len(making.jpeg(400, 300))
    assert sizes["JPEG", (400, 300), (400, 300)] == (2, 2 * photo)
    assert sizes["JPEG", (400, 300), (100, 75)] == (1, photo)
    assert sizes["progressive JPEG", (80, 60), (80, 60)][0] == 1
    assert sizes["PNG", (64, 48), (64, 48)][0] == 1
    assert sizes["WEBP", (64, 48), (64, 48)][0] == 1
    assert sizes["", (400, 300), (32, 24)] == (2, 0)
    assert sizes["", (32, 24), (8, 6)] == (1, 0)
    assert sum(count for count, _ in sizes.values()) == 13


SAME = """
import builtins, inspect, io, json, os, pickle, sys, sitecustomize, warnings
import neighbour
from pathlib import Path

def error_of(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

with open(__file__, "rb") as opened:
    facts = {
        "argv": sys.argv[1:],
        "name": __name__,
        "path": sys.path,
        "stdin": sys.stdin.read(),
        "neighbour": neighbour.VALUE,
        "sitecustomize": sitecustomize.__file__,
        "marks": os.environ.get("MARK"),
        "reader": [isinstance(opened, cls) for cls in (io.BufferedReader, io.IOBase)],
        "name of the class": f"{type(opened).__module__}.{type(opened).__qualname__}",
        "repr": repr(opened),
        "mode": [opened.mode, opened.closed, opened.raw.mode, opened.seekable()],
        "reads": [opened.read(3).hex(), opened.peek(1)[:1].hex(), opened.tell()],
        "line": next(opened).hex(),
        "into": opened.readinto(bytearray(5)),
        "file": opened.fileno() > 2,
        "pickled": error_of(lambda: pickle.dumps(opened)),
        "the rest": opened.read().hex(),
        "end": opened.read().hex(),
    }
facts |= {
    "closed": [opened.closed, error_of(lambda: opened.read())],
    "absent": error_of(lambda: open("absent", "rb")),
    "folder": error_of(lambda: open(".", "rb")),
    "text": error_of(lambda: open(__file__, "rb", encoding="utf-8")),
    "negative buffer": error_of(lambda: open(__file__, "rb", buffering=-2)),
    "signature": str(inspect.signature(open)),
    "open": [open is io.open, pickle.loads(pickle.dumps(open)) is open],
    "of a class": type("", (), {"open": open})().open(__file__, "rb").read(3).hex(),
    "path's": Path(__file__).read_bytes() == Path(__file__).open("rb").read(),
    "number": open(os.open(__file__, os.O_RDONLY), "rb").read(2).hex(),
    "filters": [str(entry) for entry in warnings.filters],
    "threads": "threading" in sys.modules,
}
from PIL import Image
facts |= {
    "loader": type(Image.__spec__.loader).__name__,
    "signature of resize": str(inspect.signature(Image.Image.resize)),
    "source": inspect.getsource(Image.Image.resize)[:20],
}
print(json.dumps(facts, indent=1))
"""


def test_a_program_sees_nothing_of_the_trace(tmp_path: Path) -> None:
    """The same facts as without it."""
    program = write(tmp_path, SAME)
    write(tmp_path, "VALUE = 5", "neighbour.py")
    (tmp_path / "site").mkdir()
    write(tmp_path / "site", "import os; os.environ['MARK'] = 'theirs'", "sitecustomize.py")
    env = {"PYTHONPATH": str(tmp_path / "site") + os.pathsep + str(Path.cwd() / "code")}
    env["PYTHONPATH"] += os.pathsep + str(Path.cwd())
    words = ("program.py", "--help", "a b", "")
    plain = run_python(*words, cwd=tmp_path, input="a line\n", env=env)
    traced = trace(*words, cwd=tmp_path, given="a line\n", env=env)
    assert json.loads(traced.stdout) == json.loads(plain.stdout), plain.stderr
    assert traced.stderr == plain.stderr == ""
    assert json.loads(plain.stdout)["marks"] == "theirs"
    assert program.exists()


FAILS = """
import sys
from PIL import Image
def fail():
    Image.new("RGB", (4, 4)).resize((2, 2))
    raise KeyError("a user's mistake")
if sys.argv[1] == "error":
    fail()
if sys.argv[1] == "exit":
    sys.exit(3)
if sys.argv[1] == "text":
    sys.exit("a reason")
"""


@pytest.mark.parametrize(("how", "code"), [("error", 1), ("exit", 3), ("text", 1)])
def test_a_program_that_fails(how: str, code: int, tmp_path: Path) -> None:
    write(tmp_path, FAILS)
    plain = run_python("program.py", how, cwd=tmp_path)
    traced = trace("program.py", how, cwd=tmp_path)
    assert traced.stderr == plain.stderr
    assert traced.trace.exit_code == plain.returncode == code
    assert traced.trace.processes[0].cpu_s
    assert traced.images("resize") == (1 if how == "error" else 0)


def test_a_module_of_a_package(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    write(package, "", "__init__.py")
    write(package, "import sys; print(__name__, __package__, sys.argv[1:])", "__main__.py")
    traced = trace("-m", "package", "x", cwd=tmp_path)
    assert traced.stdout == "__main__ package ['x']\n"
    assert traced.trace.images == ()
    assert traced.trace.first_image_s is None


def test_a_hook_that_fails_leaves_the_program_alone(tmp_path: Path) -> None:
    """A library that is another than it seems; and a folder that cannot be written."""
    write(tmp_path, "class TurboJPEG:\n    decode = property()", "turbojpeg.py")
    write(tmp_path, "open = 5", "simplejpeg.py")
    write(tmp_path, "import turbojpeg, simplejpeg\nprint('runs')")
    done = trace("program.py", cwd=tmp_path)
    assert done.stdout == "runs\n"
    program = write(tmp_path, "import sys; print('runs', '_wallclock_trace' in sys.modules)")
    bootstrap = Path.cwd() / "code" / "wallclock" / "trace" / "inside" / "bootstrap"
    env = {"PYTHONPATH": str(bootstrap), "WALLCLOCK_TRACE": str(tmp_path / "absent")}
    plain = run_python(program, cwd=tmp_path, env=env)
    assert (plain.stdout, plain.stderr) == ("runs False\n", "")
    env["WALLCLOCK_TRACE"] = "/proc"
    plain = run_python(program, cwd=tmp_path, env=env)
    assert plain.stdout == "runs True\n"
    (line,) = plain.stderr.splitlines()
    assert line.startswith("wallclock trace: not traced: ")


def test_the_hook_needs_the_standard_library_alone(tmp_path: Path) -> None:
    program = write(tmp_path, "import sys; print(*sorted(sys.modules))")
    done = trace(program, cwd=tmp_path)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "_wallclock_trace" in loaded
    assert not loaded & {"wallclock", "numpy", "torch", "PIL", "threading"}


INSIDE = ROOT / "code" / "wallclock" / "trace" / "inside"
LAUNCHER = """
import subprocess, sys
subprocess.run(sys.argv[1:], check=True)
"""
CHILD = """
import sys, time
from pathlib import Path
for _ in range(3):
    Path(sys.argv[1]).read_bytes()
ended = time.monotonic() + 0.6
while time.monotonic() < ended:
    sum(range(1000))
print(sys.version_info[:2])
"""


def test_its_syntax() -> None:
    for path in INSIDE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        future = [n.module for n in tree.body if isinstance(n, ast.ImportFrom)]
        unions = [n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and _is_none(n.right)]
        assert "__future__" in future or not unions, path
        keywords = [k.arg for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords]
        assert "strict" not in keywords, f"{path}: zip has it from 3.10 on"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _python(minor: int) -> str | None:
    """An interpreter of that version, on the path or of pyenv."""
    found = [shutil.which(f"python3.{minor}")]
    found += map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
    for python in filter(None, found):
        if not subprocess.run([python, "--version"], check=False, capture_output=True).returncode:
            return python
    return None


@pytest.mark.slow
@pytest.mark.parametrize("minor", [8, 9, 10, 12, 13])
def test_a_child_of_another_python(tmp_path: Path, minor: int) -> None:
    python = _python(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor}")
    (tmp_path / "photo.jpg").write_bytes(making.jpeg(64, 48))
    child = write(tmp_path, CHILD, "child.py")
    done = trace(write(tmp_path, LAUNCHER), python, child, tmp_path / "photo.jpg", cwd=tmp_path)
    assert done.stdout == f"(3, {minor})\n"
    if minor < 9:
        assert f"not traced: it is Python 3.{minor}" in done.stderr
        assert done.images("read") == 0
        return
    assert done.stderr == ""
    (child_process,) = [process for process in done.trace.processes if process.role != "main"]
    assert by_stage(child_process.threads)["read"].images == 3
    lines = {sample.path for thread in child_process.threads for sample in thread.samples}
    assert str(child) in lines
