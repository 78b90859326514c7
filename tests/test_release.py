"""What a release says of itself: one version everywhere, and metadata that are true."""

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

import wallclock
from tests.conftest import ROOT, run_command

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
RELEASES = re.findall(r"^## (\d+\.\d+\.\d+),? \(?(\d{4}-\d{2}-\d{2})", CHANGELOG, re.MULTILINE)


def test_one_version() -> None:
    assert PROJECT["version"] == wallclock.__version__ == CITATION["version"]
    for version, date in RELEASES[:1]:
        assert version == PROJECT["version"]
        assert date == CITATION["date-released"]


def test_the_citation_is_complete() -> None:
    """As https://citation-file-format.github.io asks, but for an address: it has none yet."""
    required = {"cff-version", "message", "title", "type", "version", "license", "authors"}
    assert required | {"abstract", "date-released", "keywords"} <= set(CITATION)
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", CITATION["date-released"])
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["keywords"] == PROJECT["keywords"]
    assert [author["name"] for author in CITATION["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]
    (paper,) = CITATION["references"]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert paper["title"] in readme
    assert paper["url"] in readme


def test_metadata_are_true() -> None:
    assert PROJECT["license"] in (ROOT / "LICENSE").read_text("utf-8").splitlines()[0]
    assert (ROOT / "code" / "wallclock" / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]
    supported = SpecifierSet(PROJECT["requires-python"])
    versions = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert versions
    assert all(supported.contains(f"{version}.0") for version in versions)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert all(url in readme for url in PROJECT["urls"].values())


@pytest.mark.slow
def test_it_can_be_built_and_published(tmp_path: Path) -> None:
    """`python -m build` makes a wheel and a source distribution, `twine check` reads both."""
    pytest.importorskip("build")
    pytest.importorskip("twine")
    source = tmp_path / "source"
    shutil.copytree(ROOT / "code", source / "code", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    run_command(*build, str(source))
    files = sorted((tmp_path / "dist").iterdir())
    assert {path.suffix for path in files} == {".whl", ".gz"}
    run_command(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
