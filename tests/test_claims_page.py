"""The table of docs/claims.md is that of data/paper/claims.csv."""

from pathlib import Path

from paper import claims
from paper.claims import CLAIMS, Claim

PAGE = Path(__file__).parents[1] / "docs" / "claims.md"
_MARKER = "<!-- claims -->\n"
_HEADING = (
    "| claim | experiment | output | paper | allowed | binds on | where in the source |",
    "|---|---|---|---|---|---|---|",
)
_NEEDS = {
    "any": "anywhere",
    "cuda": "any CUDA GPU",
    "t4-gpu": "a Tesla T4",
    "t4": "a Tesla T4 beside 16 cores",
    "t4-8": "a Tesla T4 beside 8 cores",
    "abo": "the paper's images",
}


def claim_line(claim: Claim) -> str:
    """A claim's row."""
    allowed = "at most" if claim.tolerance is None else f"± {claim.tolerance:.0%}"
    where = claim.where
    if claim.other_value is not None:
        where += f". Elsewhere {claim.other_value:,.6g}: {claim.other_where}"
    paper = f"{claim.paper_value:,.6g} {claim.unit}"
    parts = (claim.id, claim.experiment, claim.csv, paper, allowed, _NEEDS[claim.needs], where)
    return f"| {' | '.join(parts)} |"


def rewritten() -> str:
    """The page with the table as it should be."""
    before, marker, behind = PAGE.read_text(encoding="utf-8").partition(_MARKER)
    assert marker, f"docs/claims.md has no {_MARKER}"
    lines = behind.splitlines(keepends=True)
    while lines and lines[0].startswith("|"):
        del lines[0]
    rows = [claim_line(claim) for claim in claims.load(CLAIMS)]
    table = "".join(f"{line}\n" for line in (*_HEADING, *rows))
    return f"{before}{marker}{table}{''.join(lines)}"


def test_the_page_lists_every_claim() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == rewritten(), "run python -m tests.test_claims_page"
    assert page.count("\n| ") > len(claims.load(CLAIMS))


def test_no_cell_breaks_the_table() -> None:
    for claim in claims.load(CLAIMS):
        assert claim_line(claim).count("|") == 8, claim.id


if __name__ == "__main__":
    PAGE.write_text(rewritten(), encoding="utf-8")
