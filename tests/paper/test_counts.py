"""`--n 100000` measures as many images, or one line says where it does not and what to type."""

import re

import pytest

import experiments
from harness.spec import Settings
from paper.settings import load, translate
from tests.experiments.made import AboPlan

#: The paper's passes; `also` brings others beside them.
PASSES = ("serial", "cpu", "t4", "opt", "fast", "steps", "workers", "batch")
ABO = "device=cpu model=null corpus=abo"


def loaded(words: str) -> Settings:
    return load(translate(words.split()))


def planned(settings: Settings, name: str) -> set[int]:
    """Images of an experiment's timed passes over the small images."""
    plan = AboPlan(settings, lambda done, total, what: None)
    cells = experiments.load(name).cells(plan, settings.experiments[name])
    return {
        cell.images.n
        for cell in cells
        if cell.protocol in ("serial", "throughput") and cell.images.image_set == "small_256"
    }


def listed(note: str) -> dict[str, int]:
    """Experiment → images, as the line names them."""
    before = note.partition("; type")[0]
    return {name: int(n.replace(",", "")) for name, n in re.findall(r"(\w+) (\d[\d,]*)", before)}


@pytest.mark.parametrize(
    ("profile", "n", "names"),
    [
        ("paper", 100_000, "all"),
        ("paper", 5_000, ",".join(PASSES)),
        ("long", 100_000, ",".join(PASSES)),
        ("long", 5_000, ",".join(PASSES)),
        ("quick", 5_000, ",".join(PASSES)),
    ],
)
def test_the_line_names_what_is_planned(profile: str, n: int, names: str) -> None:
    settings = loaded(f"--n {n} {ABO} --experiment {names} profile={profile}")
    (note,) = settings.notes
    assert "\n" not in note
    named = listed(note.removeprefix(f"fewer images than --n {n} allows: "))
    for name in PASSES:
        assert planned(settings, name) == {named.get(name, n)}, name
    assert named.keys() <= {*PASSES}


def test_the_papers_own_command() -> None:
    (note,) = loaded("--n 100000 --experiment serial,t4,opt device=cpu model=null").notes
    assert note == (
        "fewer images than --n 100000 allows: serial 5,000, t4 12,000, opt 20,000; type "
        "profile=long for the paper's numbers (t4, opt: 100,000), or "
        "experiment.serial.images.small_256=100000 for any other number"
    )
    settings = loaded("--n 100000 --experiment t4,opt device=cpu model=null profile=long")
    assert settings.notes == ()
    assert planned(settings, "t4") == planned(settings, "opt") == {100_000}


def test_what_the_line_says_to_type() -> None:
    words = f"--n 100000 --experiment serial {ABO}"
    (note,) = loaded(words).notes
    option = re.search(r"experiment\.\S+", note)
    assert option
    settings = loaded(f"{words} {option[0]}")
    assert settings.notes == ()
    assert planned(settings, "serial") == {100_000}


@pytest.mark.parametrize(
    "words",
    [
        "--experiment serial,t4,opt",
        "--n 100 --experiment all",
        "--n 100000 --experiment decoders,frontier,profiler",
        "--quick --experiment serial,t4,opt",
    ],
)
def test_no_line_without_need(words: str) -> None:
    assert loaded(f"{words} device=cpu model=null").notes == ()


def test_a_folder_has_one_image_set() -> None:
    words = "--n 100000 --experiment serial device=cpu model=null corpus=folder corpus.path=."
    (note,) = loaded(words).notes
    assert listed(note.partition("allows: ")[2]) == {"serial": 1000}
    assert "experiment.serial.images.original=100000" in note
