"""The documents: every command in them runs, every claim is in REPRODUCE.md, every link resolves."""

from __future__ import annotations

import ast
import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import making
from wallclock import provenance
from wallclock.paper import claims
from wallclock.paper.claims import CLAIMS

ROOT = provenance.ROOT
DOCUMENTS = ("README.md", "REPRODUCE.md", "ARCHITECTURE.md", "CHANGELOG.md")


def commands(name: str) -> list[str]:
    """The lines of a document's shell blocks, without comments."""
    blocks = re.findall(
        r"```sh\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL
    )
    lines = [line.split("#", 1)[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


ALL = sorted({command for name in DOCUMENTS for command in commands(name)})
MAIN = [command for command in ALL if "code/main.py" in command]
MAKE = [command for command in ALL if command.startswith("make ")]


def test_every_documented_command_is_known() -> None:
    others = [command for command in ALL if command not in MAIN + MAKE]
    assert not others, f"no test runs these: {others}"
    assert len(MAIN) >= 6
    assert len(MAKE) >= 6


@pytest.mark.parametrize("command", MAIN)
def test_main_commands_compose(command: str, tmp_path: Path) -> None:
    words = shlex.split(command.replace("/path/to/images", str(tmp_path)))
    arguments = words[words.index("code/main.py") + 1 :]
    if "--cfg" not in arguments:
        arguments += ["--cfg", "job"]
    done = subprocess.run(
        [sys.executable, "code/main.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "experiment:" in done.stdout


@pytest.mark.parametrize("command", MAKE)
def test_make_commands_name_real_targets(command: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", *shlex.split(command)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_reproduce_has_every_claim_as_it_is_judged() -> None:
    text = (ROOT / "REPRODUCE.md").read_text(encoding="utf-8")
    for claim in claims.load(CLAIMS):
        assert claim_line(claim) in text, f"REPRODUCE.md lacks or misstates:\n{claim_line(claim)}"


def test_the_profiler_example_runs_as_written(tmp_path: Path) -> None:
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(making.jpeg(640, 480))
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    command = [sys.executable, "-W", "error", "example.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    seconds = ast.literal_eval(done.stdout)
    assert list(seconds) == ["decode", "resize"]
    assert min(seconds.values()) > 0


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_resolve(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8")):
        assert "://" in target or (ROOT / target).exists(), f"{name} links to {target}"


def claim_line(claim: claims.Claim) -> str:
    """A claim's row in REPRODUCE.md."""
    allowed = {"bound": "at most", "share": f"± {claim.tolerance}"}.get(
        claim.kind, f"± {(claim.tolerance or 0):.0%}"
    )
    where = {"any": "anywhere", "cuda": "any CUDA GPU", "t4": "a Tesla T4"}[claim.needs]
    return f"| {claim.id} | {claim.experiment} | {claim.csv} | {claim.paper_value:g} {claim.unit} | {allowed} | {where} |"


@pytest.mark.parametrize(
    ("image_set", "named"), [("original", "originals"), ("small_256", "256 px")]
)
def test_the_readmes_frontier_is_the_reference_runs(image_set: str, named: str) -> None:
    with open(
        ROOT / "data" / "reference" / "amd-epyc-2-cores" / "frontier.csv",
        newline="",
        encoding="utf-8",
    ) as file:
        found = {
            row["system"]: row for row in csv.DictReader(file) if row["image_set"] == image_set
        }
    ours = float(found["ours"]["img_per_s"])
    over = [
        f"{ours / float(found[name]['img_per_s']):.1f}"
        for name in ("pil", "baseline", "paper", "dali", "spdl")
    ]
    decibels = [float(found[name]["psnr_db"]) for name in ("ours", "paper")]
    pixels = ["same" if value >= 99 else f"{value:.0f} dB" for value in decibels]
    line = " | ".join(["", named, f"{ours:,.0f}", *over, *pixels, ""]).strip()
    assert line in (ROOT / "README.md").read_text(encoding="utf-8")


REFERENCE = ROOT / "data" / "reference"


def reference(name: str) -> list[dict[str, str]]:
    with (REFERENCE / name / "amd-epyc-2-cores.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def architecture() -> str:
    return " ".join((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split())


def test_the_milliseconds_in_the_architecture_are_the_benchmarks() -> None:
    found = {(row["part"], row["images"], row["choice"]): row for row in reference("fast-parts")}

    def ms(part: str, choice: str, digits: int, images: str = "original") -> str:
        return f"{float(found[part, images, choice]['ms']):.{digits}f}"

    def db(part: str, choice: str, images: str = "original") -> str:
        return f"{float(found[part, images, choice]['psnr_db']):.1f}"

    resizers = ("torch bilinear", "opencv area", "pil bilinear")
    full, small = (
        [ms("resize", name, *how) for name in resizers] for how in ((1,), (2, "small_256"))
    )
    scales = [ms("scale", f"{eighths}/8", 1) for eighths in (1, 2, 4, 8, 3, 5, 6)]
    quick, buffer = "1/1, fast DCT and upsampling", "simplejpeg, a buffer used again"
    for words in (
        "a full original takes {} ms where `INTER_AREA` takes {} and Pillow {}".format(*full),
        "an image of 256 px {}, {} and {},".format(*small),
        f"median {db('resize', resizers[0])} and {db('resize', resizers[0], 'small_256')} dB",
        f"`INTER_AREA` {db('resize', resizers[1])} and {db('resize', resizers[1], 'small_256')})",
        "{} ms at 1/8, {} at 1/4, {} at 1/2, {} in full, but {} at 3/8, {} at 5/8, {} at 3/4".format(
            *scales
        ),
        f"in full {ms('shortcut', quick, 1)} ms instead of {ms('shortcut', '1/1, none', 1)} for an original",
        f"at {db('shortcut', quick)} dB from the exact picture, and {ms('shortcut', quick, 3, 'small_256')} instead",
        f"of {ms('shortcut', '1/1, none', 3, 'small_256')} for one of 256 px at {db('shortcut', quick, 'small_256')}",
        f"it takes {ms('binding', buffer, 1)} ms for an original and {ms('binding', buffer, 3, 'small_256')} for an",
        f"PyTurboJPEG {ms('binding', 'PyTurboJPEG', 1)} and {ms('binding', 'PyTurboJPEG', 3, 'small_256')},",
    ):
        assert words in architecture(), words


def test_the_decibels_in_the_architecture_are_the_benchmarks() -> None:
    made, photos = (
        [row for row in reference("dct-margin") if row["images"] == images]
        for images in ("synthetic originals", "folder")
    )
    assert all(
        int(row["n_below_paper"]) == 0 for row in made + photos if float(row["dct_margin"]) >= 1.1
    )
    assert all(
        int(row["n_below_area_by_1_db"]) == 0
        for row in made + photos
        if float(row["dct_margin"]) >= 1.1
    )
    ours, theirs = (
        next(row for row in rows if row["dct_margin"] == "1.25") for rows in (made, photos)
    )

    def both(column: str) -> str:
        return f"{float(ours[column]):.1f} and {float(theirs[column]):.1f}"

    lost = (float(ours["squeezed_loss_db"]), float(ours["squeezed_loss_db_max"]))
    for words in (
        "costs {:.1f} dB on such images in the median and {:.1f} at most".format(*lost),
        f"none of {ours['n_images']} synthetic originals and of {theirs['n_images']} photos",
        f"at 1.25 the median has {both('psnr_db')} dB",
        f"`INTER_AREA` {both('area_psnr_db')}, the paper's {both('paper_psnr_db')}",
    ):
        assert words in architecture(), words


def test_the_readmes_proof_is_the_reference_diagnosis() -> None:
    rows = [row for row in reference("diagnosis") if row["error"]]
    errors = sorted(abs(float(row["error"])) for row in rows)
    middle, worst = (f"{100 * error:.1f} %" for error in (errors[len(errors) // 2], errors[-1]))
    of = f"{len(errors)} predictions for {rows[0]['n_images']} photos"
    words = f"{of} were off by {middle} in the median and by {worst} at worst"
    assert words in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def main() -> None:
    """Print the table, to paste into REPRODUCE.md after claims.csv changed: `python tests/test_docs.py`."""
    for claim in claims.load(CLAIMS):
        print(claim_line(claim))


if __name__ == "__main__":
    main()
