"""Fixtures of the paper's tests: tables that a test may change, and a published run."""

import shutil
from pathlib import Path

import pytest

from paper import report
from tests.fixture_run import fixture_tables
from tests.paper.tables import REFERENCE, Copy, as_on_t4, copy_tables


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """Copies tables of the fixture run into the test's folder `data`."""
    return lambda *names: copy_tables(tmp_path / "data", *names)


@pytest.fixture(scope="session")
def t4_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of the paper's machine. Not to be changed."""
    return as_on_t4(tmp_path_factory.mktemp("t4-tables"))


@pytest.fixture
def t4_copy(t4_tables: Path, tmp_path: Path) -> Copy:
    """Copies tables of the paper's machine into the test's folder `data`."""
    return lambda *names: copy_tables(tmp_path / "data", *names, source=t4_tables)


def _render(folder: Path, source: Path) -> Path:
    """The report of the tables in `source`, beside a copy of them: `figures/` and `data/`.

    Its figures are the reference run's: drawing them takes a minute.
    """
    data, drawn = copy_tables(folder / "data", source=source), folder / "figures"
    drawn.mkdir()
    for path in (REFERENCE / "figures").glob("*.svg"):
        shutil.copy(path, drawn)
    report.render(data, drawn)
    return folder


@pytest.fixture(scope="session")
def t4_run(t4_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published run on the paper's machine: `data/` and `figures/`. Not to be changed."""
    return _render(tmp_path_factory.mktemp("t4-run"), t4_tables)


@pytest.fixture(scope="session")
def cpu_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture run, published: `data/` and `figures/`. Not to be changed."""
    return _render(tmp_path_factory.mktemp("cpu-run"), fixture_tables())
