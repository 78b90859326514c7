"""What a release says of itself: one version everywhere, and metadata that are true."""

import re
import shutil
import subprocess
import sys
import tarfile
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
    assert wallclock.__version__ == CITATION["version"]
    for version, date in RELEASES[:1]:
        assert version == wallclock.__version__
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
def test_the_source_distribution_is_the_checkout(tmp_path: Path) -> None:
    """Its tests run: it has every file that git tracks. Built where nothing else lies."""
    command = ["git", "-C", str(ROOT), "ls-files"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git checkout, but perhaps the distribution itself")
    tracked = listed.stdout.splitlines()
    for name in tracked:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    build = "from setuptools import build_meta; build_meta.build_sdist('.')"
    run_command(sys.executable, "-c", build, cwd=tmp_path)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert not [name for name in tracked if name not in packed]
