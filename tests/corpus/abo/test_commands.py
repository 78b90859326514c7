"""`corpus=abo` on the command line and in a serial pass."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunMain
from tests.corpus.abo import bucket
from tests.corpus.abo.conftest import Corpus
from tests.corpus.abo.faulty_store import FaultyStore
from wallclock.measure import protocol
from wallclock.paper.csvfile import read_table
from wallclock.spec import Cell, ModelSpec, Recipe

#: Without a network a proxy is no way out either.
OFFLINE = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "")
SERIAL = ("t4-serial-stages.csv", "t4-serial-stages-original.csv")
RECIPES = "[{name: pil, decoder: pil, resizer: pil, interpolation: bilinear}]"


def abo(experiment: str, endpoint: str, n: int, folder: Path) -> tuple[str, ...]:
    corpus = ("corpus=abo", f"corpus.endpoint={endpoint}", "--n", f"{n}")
    return ("--experiment", experiment, *corpus, f"out={folder}/data", f"figures={folder}/figures")


def test_serial_from_an_empty_folder(run_main: RunMain, moto: str, tmp_path: Path) -> None:
    settings = ("corpus.layout=tar", "model=null", "device=cpu", "repeats=1")
    recipes = f"experiment.serial.recipes={RECIPES}"
    done = run_main(*abo("serial", moto, 6, tmp_path), *settings, recipes)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in SERIAL:
        rows = read_table(tmp_path / "data" / name)
        outcomes = {(row["corpus"], row["n_images"], row["status"]) for row in rows}
        assert outcomes == {("abo (tar)", "6", "ok")}
    meta = json.loads((tmp_path / "data/t4-serial-stages.meta.json").read_text(encoding="utf-8"))
    for corpus in meta["corpora"]:
        assert corpus["credit"]["licence"] == "CC BY 4.0"
        assert corpus["credit"]["attribution"] == bucket.CREDIT
    assert bucket.CREDIT in (tmp_path / "figures/report.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_five_hundred_images_end_to_end(run_main: RunMain, tmp_path: Path) -> None:
    """As documented, but with one repeat: all recipes, the real model, both sets from a server."""
    few, rows = bucket.objects(40, 50), bucket.rows(700, 50)
    objects = {bucket.CATALOGUE: bucket.catalogue(rows), "README.md": bucket.README}
    for number, row in enumerate(rows):
        source = bucket.rows(40, 50)[number % 40][3]
        for folder in ("small", "original"):
            objects[f"images/{folder}/{row[3]}"] = few[f"images/{folder}/{source}"]
    with FaultyStore(objects) as store:
        arguments = abo("serial", store.endpoint, 500, tmp_path)
        done = run_main(*arguments, "repeats=1", timeout=2300)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in SERIAL:
        table = read_table(tmp_path / "data" / name)
        assert len(table) >= 2
        outcomes = {(row["corpus"], row["n_images"], row["n_failed"]) for row in table}
        assert outcomes == {("abo", "500", "0")}
        assert {row["status"] for row in table} <= {"ok", "unavailable"}
    assert bucket.CREDIT in (tmp_path / "figures/report.html").read_text(encoding="utf-8")


def test_only_data_prints_the_list(run_main: RunMain, moto: str, tmp_path: Path) -> None:
    arguments = (*abo("decoders", moto, 5, tmp_path), "only=data")
    done = run_main(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "abo small_256: 5 images" in done.stdout
    assert "list original-5: " in done.stdout
    assert "licence: CC BY 4.0 (LICENSE-CC-BY-4.0.txt)" in done.stdout
    digest = re.findall(r"list original-5: ([0-9a-f]{64}),", done.stdout)[0]
    done = run_main(*arguments, f"+corpus.lists={{original-5:{digest},small_256-5:1f3a}}")
    assert done.stderr.startswith("wallclock: the list small_256-5 has the digest ")
    assert done.stderr.count("\n") == 1


def test_no_network_is_one_line_soon(run_main: RunMain, tmp_path: Path) -> None:
    """AWS itself where it cannot be reached, else a host that does not exist."""
    host = "amazon-berkeley-objects.s3.us-east-1.amazonaws.com"
    endpoint = ""
    if reachable(host):
        host = "no-such-host.invalid"
        endpoint = f"http://{host}"
    began = time.monotonic()
    done = run_main(*abo("all", endpoint, 5, tmp_path), "only=data", env=OFFLINE)
    assert time.monotonic() - began < 30
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"wallclock: cannot reach {host}: ")
    assert f"//{host}/" in done.stderr
    for hint in ("the network", "corpus.endpoint", "corpus=synthetic", "corpus=folder corpus.path"):
        assert hint in done.stderr


def reachable(host: str) -> bool:
    try:
        socket.create_connection((host, 443), timeout=3).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("page_cache", ["warm", "cold"])
@pytest.mark.parametrize(
    "storage", [{}, {"layout": "tar"}, {"layout": "lmdb"}, {"source": "remote"}]
)
def test_serial_pass_reads_each_storage(
    corpus: Corpus, tmp_path: Path, storage: dict[str, Any], page_cache: str
) -> None:
    params = {"page_cache": page_cache, "max_failures": 0}
    images, model = corpus.slice(n=20, **storage), ModelSpec("null", weights="none")
    recipe = Recipe("pil", batch_size=8)
    cell = Cell("serial", "serial", "pil", 0, recipe, images, model, params)
    (tmp_path / "work").mkdir()
    measured = protocol.find("serial")(cell, tmp_path / "work", lambda done: None)
    assert len(measured.samples["read"]) == measured.values["n_embedded"] == 20
    assert measured.values["page_cache"] == ("none" if "source" in storage else page_cache)
    assert not measured.failures
