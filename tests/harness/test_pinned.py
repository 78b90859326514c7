"""Which CPUs a process on some of the cores gets, and that it and its children keep to them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.pinned import choose, siblings_of
from tests.conftest import ROOT
from wallclock.machine import usable_cores


def test_each_cores_first_thread_comes_first() -> None:
    """CPUs 0 and 4, 1 and 5, ... are the two threads of a core; 3 may not be used."""
    pairs = {cpu: (cpu % 4, cpu % 4 + 4) for cpu in range(8)}
    allowed = {0, 1, 2, 4, 5, 6, 7}
    assert choose(4, allowed, pairs.__getitem__) == [0, 1, 2, 7]
    assert choose(7, allowed, pairs.__getitem__) == [0, 1, 2, 7, 4, 5, 6]
    assert choose(1, {6}, pairs.__getitem__) == [6]
    with pytest.raises(ValueError, match="8 cores are asked for, and 7 may be used"):
        choose(8, allowed, pairs.__getitem__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0,8\n", (0, 8)), ("8-9\n", (8, 9)), ("0-1,8\n", (0, 1, 8)), (None, (0,))],
)
def test_siblings_are_the_kernels(
    tmp_path: Path, text: str | None, expected: tuple[int, ...]
) -> None:
    folder = tmp_path / "cpu0" / "topology"
    if text is not None:
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text, encoding="ascii")
    assert siblings_of(0, tmp_path) == expected


COUNT = "import os; from wallclock.machine import usable_cores; print(usable_cores(), os.getpid())"
WITH_A_CHILD = f"import subprocess, sys; {COUNT}; sys.stdout.flush(); "
WITH_A_CHILD += f"subprocess.run([sys.executable, '-c', {COUNT!r}])"


def test_a_pinned_process_and_its_children_have_so_many_cores() -> None:
    allowed = os.sched_getaffinity(0)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "code")}
    for n in {1, min(2, usable_cores())}:
        command = [sys.executable, "-m", "harness.pinned", str(n), "-c", WITH_A_CHILD]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
            lines = [line.split() for line in run.communicate()[0].splitlines()]
        assert [cores for cores, _ in lines] == [str(n)] * 2
        assert lines[0][1] == str(run.pid), "the process stays the same"
    assert os.sched_getaffinity(0) == allowed
