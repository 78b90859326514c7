"""`corpus=abo` on the command line and in a serial pass."""

import json
import re
import time
from pathlib import Path

import pytest

from experiments import cpu
from harness.corpora.abo.prepare import ATTRIBUTION
from paper.csvfile import read_table
from tests.conftest import RunMain

#: Without a network a proxy is no way out either.
OFFLINE = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "")
SERIAL = ("t4-serial-stages.csv", "t4-serial-stages-original.csv")


def abo(experiment: str, endpoint: str, n: int, folder: Path) -> tuple[str, ...]:
    corpus = ("corpus=abo", f"corpus.endpoint={endpoint}", "--n", f"{n}")
    return ("--experiment", experiment, *corpus, f"out={folder}/data", f"figures={folder}/figures")


@pytest.mark.slow
def test_pass_from_an_empty_folder(run_main: RunMain, moto: str, tmp_path: Path) -> None:
    settings = ("model=null", "device=cpu", "repeats=1")
    done = run_main(*abo("cpu", moto, 6, tmp_path), *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    path = tmp_path / "data" / cpu.CSV
    (row,) = read_table(path)
    assert (row["corpus"], row["n_images"], row["status"]) == ("abo", "6", "ok")
    meta = json.loads(path.with_suffix(".meta.json").read_text(encoding="utf-8"))
    (corpus,) = meta["corpora"]
    assert corpus["credit"]["licence"] == "CC BY 4.0"
    assert corpus["credit"]["attribution"] == ATTRIBUTION
    assert ATTRIBUTION in (tmp_path / "figures/report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_only_data_prints_the_list(run_main: RunMain, moto: str, tmp_path: Path) -> None:
    done = run_main(*abo("decoders", moto, 5, tmp_path), "only=data")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "abo small_256: 5 images" in done.stdout
    assert re.search(r"list original-5: [0-9a-f]{64},", done.stdout)
    assert "licence: CC BY 4.0\n" in done.stdout


@pytest.mark.slow
def test_no_network_is_one_line_soon(run_main: RunMain, tmp_path: Path) -> None:
    host = "no-such-host.invalid"
    began = time.monotonic()
    done = run_main(*abo("all", f"http://{host}", 5, tmp_path), "only=data", env=OFFLINE)
    assert time.monotonic() - began < 30
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"wallclock: cannot reach {host}: ")
    for hint in ("the network", "corpus.endpoint", "corpus=synthetic", "corpus=folder corpus.path"):
        assert hint in done.stderr
