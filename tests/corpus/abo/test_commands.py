"""`corpus=abo` on the command line: an experiment from an empty folder, one line where there is no network."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunMain
from tests.corpus.abo import bucket
from tests.corpus.abo.conftest import Corpus
from tests.corpus.abo.nginx import Nginx
from wallclock.corpus.abo import cost
from wallclock.errors import UserError
from wallclock.measure import registry
from wallclock.settings import load, translate
from wallclock.spec import Cell, ModelSpec, Recipe

#: Without a network there is none to be had by a proxy either.
OFFLINE = {"HTTP_PROXY": "", "HTTPS_PROXY": "", "http_proxy": "", "https_proxy": ""}


def test_the_serial_experiment_from_an_empty_folder(
    run_main: RunMain, nginx: Nginx, tmp_path: Path
) -> None:
    arguments = (
        *("--experiment", "serial", "corpus=abo", f"corpus.endpoint={nginx.endpoint}", "--n", "6"),
        "experiment.serial.recipes=[{name: pil, decoder: pil, resizer: pil, interpolation: bilinear}]",
        *(
            "corpus.layout=tar",
            "model=null",
            "device=cpu",
            "repeats=1",
            f"out={tmp_path}/data",
            f"figures={tmp_path}/figures",
        ),
    )
    done = run_main(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("t4-serial-stages.csv", "t4-serial-stages-original.csv"):
        with (tmp_path / "data" / name).open(encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
        assert {(row["corpus"], row["n_images"], row["status"]) for row in rows} == {
            ("abo (tar)", "6", "ok")
        }
    about = json.loads(
        (tmp_path / "data" / "t4-serial-stages.meta.json").read_text(encoding="utf-8")
    )
    for corpus in about["corpora"]:
        assert corpus["credit"]["licence"] == "CC BY 4.0"
        assert corpus["credit"]["attribution"] == "Credit for all of it: Someone"
    assert "Credit for all of it: Someone" in (tmp_path / "figures" / "report.html").read_text(
        encoding="utf-8"
    )


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_five_hundred_images_end_to_end(run_main: RunMain, tmp_path: Path) -> None:
    """As the documents have it, but for one repeat: all recipes, the real model, both sets from a server."""
    few = bucket.objects(40, 50)
    rows = bucket.rows(700, 50)
    found = {"images/metadata/images.csv.gz": bucket.catalogue(rows), "README.md": bucket.README}
    for number, row in enumerate(rows):
        _, _, _, first = bucket.rows(40, 50)[number % 40]
        for folder in ("small", "original"):
            found[f"images/{folder}/{row[3]}"] = few[f"images/{folder}/{first}"]
    bucket.write(found, tmp_path / "tree")
    with Nginx(tmp_path / "tree", bucket.NAME, tmp_path / "work") as server:
        arguments = (
            "--experiment",
            "serial",
            "corpus=abo",
            f"corpus.endpoint={server.endpoint}",
            "--n",
            "500",
        )
        where = (f"out={tmp_path}/data", f"figures={tmp_path}/figures")
        done = run_main(*arguments, "repeats=1", *where, timeout=2300)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("t4-serial-stages.csv", "t4-serial-stages-original.csv"):
        with (tmp_path / "data" / name).open(encoding="utf-8", newline="") as handle:
            table = list(csv.DictReader(handle))
        assert len(table) >= 2
        assert {(row["corpus"], row["n_images"], row["n_failed"]) for row in table} == {
            ("abo", "500", "0")
        }
        assert {row["status"] for row in table} <= {"ok", "unavailable"}
    assert "Credit for all of it: Someone" in (tmp_path / "figures" / "report.html").read_text(
        encoding="utf-8"
    )


def test_only_data_says_what_is_here(run_main: RunMain, nginx: Nginx, tmp_path: Path) -> None:
    arguments = (
        *(
            "--experiment",
            "decoders",
            "corpus=abo",
            f"corpus.endpoint={nginx.endpoint}",
            "--n",
            "5",
            "only=data",
        ),
        *(f"out={tmp_path}/data", f"figures={tmp_path}/figures"),
    )
    done = run_main(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "abo small_256: 5 images" in done.stdout
    assert "list original-5: " in done.stdout
    assert "licence: CC BY 4.0 (LICENSE-CC-BY-4.0.txt)" in done.stdout
    digest = re.findall(r"list original-5: ([0-9a-f]{64}),", done.stdout)[0]
    done = run_main(*arguments, f"+corpus.lists={{original-5:{digest},small_256-5:1f3a}}")
    assert done.stderr.startswith("wallclock: the list small_256-5 has the digest ")
    assert done.stderr.count("\n") == 1


def test_without_a_network_it_is_one_line_soon(run_main: RunMain, tmp_path: Path) -> None:
    """AWS itself where it cannot be reached, else a host that there is not."""
    endpoint = "http://no-such-host.invalid" if _has_network() else ""
    began = time.monotonic()
    done = run_main(
        *(
            "--experiment",
            "all",
            "corpus=abo",
            "only=data",
            f"corpus.endpoint={endpoint}",
            f"out={tmp_path}",
        ),
        env=OFFLINE,
    )
    assert time.monotonic() - began < 15
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    host = (
        "no-such-host.invalid" if endpoint else "amazon-berkeley-objects.s3.us-east-1.amazonaws.com"
    )
    assert done.stderr.startswith(f"wallclock: cannot reach {host}: ")
    assert f"//{host}/" in done.stderr
    for hint in (
        "check the network",
        "corpus.endpoint",
        "corpus=synthetic",
        "corpus=folder corpus.path=",
    ):
        assert hint in done.stderr


def _has_network() -> bool:
    import socket

    try:
        socket.create_connection(
            ("amazon-berkeley-objects.s3.us-east-1.amazonaws.com", 443), timeout=3
        ).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("typo", "line"),
    [
        ("corpus=abo corpus.layout=tra", r"no corpus\.layout is called 'tra'; did you mean tar"),
        ("corpus=abo corpus.source=s3", r"no corpus\.source is called 's3'; valid: local, remote"),
        (
            "corpus=abo corpus.source=remote corpus.layout=tar",
            r"corpus\.source=remote reads object by object",
        ),
        ("corpus=abo corpus.threads=0", r"corpus\.threads=0: give a whole number of at least 1"),
        ("corpus=abo corpus.read_timeout_s=0", r"corpus\.read_timeout_s=0: give seconds above 0"),
        (
            "corpus=abo corpus.prefixes.original=300",
            r"corpus\.prefixes\.original=300: there are 256",
        ),
        ("corpus=abo corpus.prefixes.small=3", r"corpus\.prefixes\.small"),
        (
            "corpus=abo corpus.endpoint=localhost:9000",
            r"corpus\.endpoint=localhost:9000: give http://host:port",
        ),
        ("corpus=abo corpus.bucket=3", r"corpus\.bucket=3: give a text"),
        ("corpus.endpoint=http://x", r"corpus\.endpoint is a setting of corpus=abo; add that"),
    ],
)
def test_a_typo_is_one_line(typo: str, line: str) -> None:
    with pytest.raises(UserError, match=line) as caught:
        load(translate(typo.split()))
    assert "\n" not in str(caught.value)


def test_a_pinned_list_that_differs_stops_the_run(corpus: Corpus) -> None:
    made = corpus(n=5)
    digest = json.loads(
        (corpus.folder / "small_256-first70-seed0.list.json").read_text(encoding="utf-8")
    )["digest"]
    assert corpus(n=5, lists={"small_256-5": digest, "small_256-9": "not asked for"}) == made
    for n in (5, 6):
        with pytest.raises(
            UserError, match=rf"the list small_256-{n} has the digest .* corpus\.lists says 123"
        ):
            corpus(n=n, lists={f"small_256-{n}": "123"})


@pytest.mark.parametrize(
    "choice", [{}, {"layout": "tar"}, {"layout": "lmdb"}, {"source": "remote"}]
)
@pytest.mark.parametrize("page_cache", ["warm", "cold"])
def test_a_serial_pass_reads_from_each(
    corpus: Corpus, tmp_path: Path, choice: dict[str, Any], page_cache: str
) -> None:
    params = {"page_cache": page_cache, "max_failures": 0}
    model = ModelSpec("null", weights="none")
    cell = Cell(
        "serial",
        "serial",
        "pil",
        0,
        Recipe("pil", batch_size=8),
        corpus.slice(n=20, **choice),
        model,
        params,
    )
    (tmp_path / "work").mkdir()
    found = registry.find("serial")(cell, tmp_path / "work", lambda done: None)
    assert len(found.samples["read"]) == found.values["n_embedded"] == 20
    assert found.values["page_cache"] == ("none" if "source" in choice else page_cache)
    assert not found.failures


def test_what_a_download_costs() -> None:
    small, original = cost.of("small_256", 100_000), cost.of("original", 5_000)
    assert (small.requests, small.bytes) == (100_000, 740_000_000)
    assert original.bytes == 1_890_000_000
    assert small.minutes(100e6) == pytest.approx((740e6 + 90e6) * 8 / 100e6 / 60)
    assert cost.disk_needed("small_256", 100_000) > small.disk_bytes > small.bytes


class TestLicence:
    def test_it_is_kept_with_its_digest(self, corpus: Corpus) -> None:
        from wallclock.corpus import prepare

        corpus(n=1)
        folder = corpus.folder / "licence"
        assert (folder / "LICENSE-CC-BY-4.0.txt").read_bytes() == bucket.LICENCE
        found = prepare.credit(corpus.spec(), corpus.cache)
        assert found["relied_on"] == "LICENSE-CC-BY-4.0.txt"
        assert [file["name"] for file in found["files"]] == ["LICENSE-CC-BY-4.0.txt", "README.md"]
        assert found["attribution"] == "Credit for all of it: Someone"

    def test_a_damaged_one_is_fetched_again(self, corpus: Corpus) -> None:
        corpus(n=1)
        path = corpus.folder / "licence" / "LICENSE-CC-BY-4.0.txt"
        path.write_bytes(b"something else")
        corpus(n=2)
        assert path.read_bytes() == bucket.LICENCE

    def test_a_mirror_without_one_is_said_to_have_none(self, corpus: Corpus, proxy: Any) -> None:
        from tests.corpus.abo.fault_proxy import always
        from wallclock.corpus import prepare

        proxy.decide = always("404", "LICENSE", "README")
        corpus(n=1)
        found = prepare.credit(corpus.spec(), corpus.cache)
        assert found["relied_on"].startswith("none: ")
        assert "Amazon.com" in found["attribution"]
        before = proxy.total
        corpus(n=1)
        assert proxy.total == before
