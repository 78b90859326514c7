"""What identifies a measurement: the code that it depends on, and the installed libraries."""

from __future__ import annotations

import re
from importlib import metadata

from tests.conftest import ROOT
from tests.test_layers import SOURCES, ours
from wallclock import provenance

MEASURED = set(provenance.measured_code(provenance.PACKAGE))

#: Measured code imports these, and no figure depends on them: messages, file formats, live metrics.
NOT_MEASURED = {"errors", "files", "provenance", "records", "measure/monitor"}


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
    ground = ("checkpoint", "clock", "native", "spec", "summary", "thread_counts")
    alone = {*(f"{name}.py" for name in ground), "run/worker.py"}
    packages = ("corpus/", "stages/", "engines/", "measure/")
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
