"""Fixtures of the paper's tests: tables that a test may change, and a published run."""

from pathlib import Path

import pytest

from paper import figures, report, tables
from paper.figures import style
from tests.fixture_run import fixture_tables
from tests.paper.tables import Copy, as_on_t4, copy_tables


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
    """All outputs of the tables in `source`, beside a copy of them: `figures/` and `data/`."""
    data, drawn = copy_tables(folder / "data", source=source), folder / "figures"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(style, "_METADATA", {"svg": style._METADATA["svg"]})
        for stem in figures.FIGURES:
            figures.render(stem, data, drawn)
    for stem in tables.TABLES:
        tables.render(stem, data, drawn)
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
