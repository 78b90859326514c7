"""A small synthetic corpus for the protocols."""

import pytest

from harness.corpora import synthetic
from harness.spec import CorpusSpec, Slice

#: Python 3.12 warns at every fork of a process with threads; here the start method is a setting.
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Slice:
    """Eighteen images of 256 px, half of them progressive."""
    spec = CorpusSpec("synthetic", progressive_share=0.5)
    folder = tmp_path_factory.mktemp("corpus")
    return synthetic.prepare(spec, "small_256", 18, folder, lambda done, total, what: None)
