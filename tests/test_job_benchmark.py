"""What `benchmarks.job` says of its runs: shares by round, memory, and files that find no room."""

import csv
from pathlib import Path
from typing import Any

import pytest

from benchmarks import job
from harness import corpora, provenance
from harness.corpora import manifest
from harness.corpora.manifest import Manifest
from harness.spec import Slice
from tests.harness.protocols.conftest import corpus as corpus

LISTS = job.Lists(Path("first.csv"), Path("changed.csv"), 2**31, 0.25)


@pytest.fixture
def pictures(corpus: Slice) -> Manifest:
    """Eighteen generated images of 256 px."""
    return manifest.load(Path(corpus.manifest))


def runs(*seconds: float) -> list[job.Run]:
    return [job.Run(taken, 2, 100.0 + taken, 2**30) for taken in seconds]


def test_shares_are_of_the_plain_job_of_the_same_round(pictures: Manifest) -> None:
    timed = {"plain": runs(10, 20, 30), "thumbnails": runs(11, 24, 30)}
    plain, kept = job.make_rows(pictures, "small_256", 1000, LISTS, timed, is_repeated=False)
    assert (plain["of_plain"], plain["of_plain_min"], plain["of_plain_max"]) == (1, 1, 1)
    assert (kept["of_plain"], kept["of_plain_min"], kept["of_plain_max"]) == (1.1, 1, 1.2)
    assert (kept["wall_s"], kept["img_per_s"]) == (24, pytest.approx(1000 / 24))
    assert (kept["peak_memory_mib"], kept["files_gib"]) == (130, 2)
    assert (kept["page_cache_share"], kept["from_disk_share"]) == (0.25, 0.5)
    assert kept["median_megapixels"] == pytest.approx(0.05, abs=0.02)
    assert (kept["files"], kept["deduplicate"], kept["status"]) == ("distinct", True, "ok")


def test_files_larger_than_the_memory(
    pictures: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as take a quarter more; on a disk that is too small, a row with the reason."""
    sizes = [item.bytes for item in pictures.valid]
    n = job._more_than_memory(pictures)
    assert n * sum(sizes) / len(sizes) == pytest.approx(1.25 * job.memory_bytes(), rel=0.01)

    def no_room(paths: Any, folder: Path, n: int) -> None:
        folder.mkdir()
        corpora.check_space(folder, 10**18, "distinct files")

    (tmp_path / "data").mkdir()
    provenance.versions()  # of the checkout, whose lock it reads once
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr(job, "_pictures", lambda images: pictures)
    monkeypatch.setattr(job, "lay_out", no_room)
    arguments = ["job", "--small", "3", "--original", "3", "--jobs", "plain"]
    monkeypatch.setattr("sys.argv", [*arguments, "--larger-than-memory"])
    job.main()
    with (tmp_path / "data" / "benchmarks" / "job.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["n_images"], row["status"]) for row in rows] == [
        ("3", "unavailable"),
        ("3", "unavailable"),
        (str(n), "unavailable"),
    ]
    assert "distinct files: 1,000,000,000.00 GB are needed" in rows[-1]["reason"]
    assert not rows[-1]["wall_s"]
