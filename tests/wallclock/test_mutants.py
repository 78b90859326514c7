"""Whatever is in a file from outside: it is read, or refused in one line, within a gigabyte."""

from collections import Counter

import pytest

from tests.mutants import KINDS, outcomes

N = 2000
#: Kinds that are read in a few milliseconds.
LIGHT = {"list.csv", "list.jsonl", "list.json", "list.txt"}
LIGHT |= {"table.parquet", "images.tar", "images.tar.gz"}


def check(lines: list[str]) -> Counter[tuple[str, str]]:
    assert [line for line in lines if line.split()[2] == "wrong:"] == []
    return Counter((line.split()[0], line.split()[2]) for line in lines)


def test_some_of_each_kind() -> None:
    jobs = [(kind, N + seed) for kind in KINDS for seed in range(10 if kind in LIGHT else 1)]
    found = check([*outcomes(jobs)])
    assert {kind for kind, outcome in found if outcome == "refused:"} == {*KINDS}


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", KINDS)
def test_2000_of_a_kind(kind: str) -> None:
    found = check([*outcomes([(kind, seed) for seed in range(N)])])
    assert found[kind, "refused:"] > N // 100
    assert found[kind, "read"]
