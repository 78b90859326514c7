"""The command line: one small run end to end, again, and mistakes; a run that survives a cell."""

import hashlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import yaml

import main as study
from experiments import contents
from experiments.decoders import cells as decoders
from harness.table import read_columns, read_table
from paper import claims
from paper.session import random_weights, run_session
from paper.settings import load, translate
from tests import hub
from tests.conftest import ROOT, Run, RunMain, short_run
from tests.experiments import made
from wallclock.checkpoint import DEFAULT

# --- main -----------------------------------------------------------------------------------------


RAN = ("serial", "cpu")


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The only line of a refusal; there is no traceback and the status says failure."""
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def digests(*folders: Path, without: tuple[str, ...] = ("runs", "corpora")) -> dict[str, str]:
    """sha256 of every file by its name, but for the folders named."""
    return {
        f"{folder.name}/{path.relative_to(folder)}": hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in without
    }


class TestWithoutRunning:
    def test_cfg_job(self, run_main: RunMain) -> None:
        words = "--quick --n 7 --experiment serial --cfg job recipe.batch_size=5"
        done = run_main(*words.split())
        assert done.returncode == 0, done.stderr
        config = yaml.safe_load(done.stdout)
        assert (config["n"], config["profile_repeats"], config["recipe"]["batch_size"]) == (7, 3, 5)
        # Defaults come from the dataclass and are shown, too.
        assert config["recipe"]["sink"] == "parquet"
        assert list(config["experiment"]) == ["serial"]

    def test_help(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["main.py", "--help"])
        study.main()
        printed = capsys.readouterr().out
        for word in ("--quick", "--n N", "--experiment", "corpus=folder", *contents.ORDER):
            assert word in printed, word
        lines = printed.splitlines()
        assert len(lines) <= 60
        assert max(map(len, lines)) <= 100

    @pytest.mark.parametrize(
        ("words", "line"),
        [
            # Hydra's own way, which composes each job of a sweep.
            ("--multirun recipe=baseline,optimised", "did you mean optimized"),
            ("out=/etc/passwd/data", "out=/etc/passwd/data: cannot write there"),
        ],
    )
    def test_mistakes(self, run_main: RunMain, words: str, line: str, tmp_path: Path) -> None:
        """More of them: tests/test_typed_mistakes.py."""
        done = run_main(*words.split(), "model=null", f"figures={tmp_path / 'figures'}")
        assert one_line(done).startswith("wallclock: ")
        assert line in done.stderr

    def test_another_python(self) -> None:
        command = [sys.executable, "-S", "-E", "code/main.py", "--quick", "corpus.path=a b"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        line = one_line(done)
        assert "this Python lacks hydra; type `make setup`" in line
        assert "`.venv/bin/python code/main.py --quick 'corpus.path=a b'`" in line


class TestTinyRun:
    def test_summary_lines(self, tiny_run: Run) -> None:
        out = tiny_run.done.stdout
        assert "cells to measure: about" in out
        assert "cells measured, 0 reused on cpu, corpus synthetic, weights none" in out
        for path in (tiny_run.out, tiny_run.figures, tiny_run.out / "runs"):
            assert str(path) in out
        assert "paper, " in out

    def test_tables(self, tiny_run: Run) -> None:
        for name in RAN:
            for table, columns in contents.load(name).TABLES.items():
                path = tiny_run.out / table
                assert read_columns(path) == list(columns)
                rows = read_table(path)
                assert rows
                assert {row["status"] for row in rows} == {"ok"}
                assert {row["origin"] for row in rows} == {"measured"}
                assert b"\r" not in path.read_bytes()
                about = json.loads(path.with_suffix(".meta.json").read_text(encoding="utf-8"))
                assert about["experiment"] == name
                assert about["command"].startswith("python ")
                assert {"machine", "versions", "corpora"} <= about.keys()

    def test_verdicts_and_figures(self, tiny_run: Run) -> None:
        verdicts = read_table(tiny_run.out / "claims.csv")
        judged = {row["experiment"] for row in verdicts if row["verdict"] != "not run"}
        assert judged == set(RAN)
        for stem in ("fig-01-stacked-stage-time", "fig-01b-stacked-stage-time-original"):
            for suffix in (".png", ".svg"):
                assert (tiny_run.figures / f"{stem}{suffix}").stat().st_size > 1_000

    def test_vectors_are_kept_once_per_recipe(self, tiny_run: Run) -> None:
        paths = tiny_run.out.rglob("vectors.parquet")
        kept = sorted(path.parent.name.rpartition("-r0-")[0] for path in paths)
        assert kept == ["cpu-small_256", "pil-original", "pil-small_256"]
        assert not list(tiny_run.out.rglob(".*")), "scratch folders and partial records are left"


class TestAgain:
    def test_same_command_writes_the_same_bytes(self, tiny_run: Run, run_main: RunMain) -> None:
        before = digests(tiny_run.out, tiny_run.figures)
        done = run_main(*tiny_run.arguments)
        assert done.returncode == 0, done.stderr
        assert "0 cells measured, " in done.stdout
        assert "cells to measure" not in done.stdout
        assert digests(tiny_run.out, tiny_run.figures) == before

    @pytest.mark.slow
    def test_rebuilt_from_records(self, tiny_run: Run, tmp_path: Path) -> None:
        out, figures = tmp_path / "data", tmp_path / "figures"
        shutil.copytree(tiny_run.out / "runs", out / "runs")
        command = [sys.executable, "-m", "paper", "figures"]
        command += ["--out", str(out), "--figures", str(figures)]
        subprocess.run(command, cwd=ROOT / "code", capture_output=True, check=True)
        assert digests(out, figures) == digests(tiny_run.out, tiny_run.figures)

    @pytest.mark.slow
    def test_sweep(self, tiny_cpu: tuple[str, ...], run_main: RunMain) -> None:
        before = {path.name for path in ROOT.iterdir()}
        done = run_main("--multirun", "seed=0,1", *tiny_cpu)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("0 cells measured, 1 reused") == 2
        assert {path.name for path in ROOT.iterdir()} <= before | {".hypothesis", ".pytest_cache"}

    @pytest.fixture
    def tiny_cpu(self, tiny_run: Run, tmp_path: Path) -> tuple[str, ...]:
        """The command of the tiny run's experiment `cpu`, on a copy of its records."""
        shutil.copytree(tiny_run.out / "corpora", tmp_path / "data" / "corpora")
        shutil.copytree(tiny_run.out / "runs" / "cpu", tmp_path / "data" / "runs" / "cpu")
        return ("--n", "2", "--experiment", "cpu", *short_run(tmp_path))


# --- session --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "warns"),
    [
        ("--experiment diagnose model.weights=random", True),
        ("--experiment diagnose,serial model.weights=random", True),
        ("--experiment serial model.weights=random", False),
        ("--experiment diagnose model=null", False),
    ],
)
def test_a_diagnosis_without_a_model_says_so(words: str, warns: bool) -> None:
    """The paper's own experiments are of speed, and name the weights in every row."""
    lines = random_weights(load(translate([*words.split(), "device=cpu"])))
    assert len(lines) == warns
    for line in lines:
        assert line.startswith("RANDOM WEIGHTS: ")
        assert "MODEL=" in line
        assert "\n" not in line


@contextmanager
def killed(label: str, runs: Path) -> Iterator[None]:
    """The kernel's part where memory ends: each worker that measures this cell gets SIGKILL."""
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.005):
            if list(runs.glob(f"*/.{label}*.work")):
                for child in psutil.Process().children():
                    with suppress(psutil.NoSuchProcess):
                        child.kill() if "harness.worker" in child.cmdline() else None

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        try:
            yield
        finally:
            ended.set()
            killing.result()


def test_a_run_survives_a_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a row with the reason; all is published; the same command measures what is missing."""
    words = ["experiment=[decoders]", "repeats=1", "experiment.decoders.decoders=[pil,opencv]"]
    settings = made.plan(tmp_path, *words, f"figures={tmp_path / 'figures'}").settings
    with killed("opencv-original", settings.runs):
        assert run_session(settings, "test") == 1
    printed = capsys.readouterr()
    assert "2 cells measured, 0 reused, 1 crashed" in printed.out
    assert printed.err.splitlines() == [
        "wallclock: 1 cell crashed twice: the same command tries again; "
        f"output: {settings.runs}/*/*/stderr.txt",
        "wallclock: decoders/opencv-original original #1: killed by SIGKILL (out of memory?)",
    ]
    rows = {row["decoder"]: row for row in read_table(settings.out / decoders.CSV)}
    assert (rows["pil"]["status"], rows["opencv"]["status"]) == ("ok", "error")
    assert rows["opencv"]["reason"] == "killed by SIGKILL (out of memory?)"
    verdicts = read_table(settings.out / claims.CSV)
    assert len(verdicts) == len(claims.load(claims.CLAIMS))
    assert "killed by SIGKILL" in (settings.figures / "report.html").read_text("utf-8")
    assert (settings.figures / "fig-03-decoder-comparison.svg").exists()
    assert run_session(settings, "test") == 0
    printed = capsys.readouterr()
    assert "1 cells measured, 2 reused" in printed.out
    assert printed.err == ""
    assert {row["status"] for row in read_table(settings.out / decoders.CSV)} == {"ok"}


def test_data_brings_the_weights_before_the_images(run_main: RunMain, tmp_path: Path) -> None:
    words = ["--n", "1", "--experiment", "cpu", "only=data", "model.weights=pretrained"]
    words += [f"out={tmp_path}/data", f"figures={tmp_path}/figures"]
    (tmp_path / "any").write_bytes(b"{}")
    folder = f"{DEFAULT.hub_id}/resolve/{DEFAULT.revision}"
    names = ("config.json", "model.safetensors")
    for served in ((), names):
        with hub.serve({f"{folder}/{name}": tmp_path / "any" for name in served}) as (address, _):
            env = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hub")}
            done = run_main(*words, env=env)
        assert (tmp_path / "data" / "corpora").is_dir() == bool(served)
        if not served:
            assert one_line(done).startswith(f"wallclock: cannot load {DEFAULT.hub_id}: ")
    assert f"weights of {DEFAULT.hub_id}: " in done.stdout
    assert "synthetic small_256: 1 images" in done.stdout
