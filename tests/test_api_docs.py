"""pdoc makes a page of the public names, without a warning."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wallclock
from tests.conftest import ROOT


@pytest.mark.slow
def test_every_public_name_is_on_the_page(tmp_path: Path) -> None:
    pytest.importorskip("pdoc")
    script = str(ROOT / "scripts" / "api_docs.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", script, "-o", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "code")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warn" not in done.stderr
    page = (tmp_path / "wallclock.html").read_text(encoding="utf-8")
    for name in set(wallclock.__all__) - {"predict"}:  # a module, with a page of its own
        assert f'id="{name}"' in page, name
