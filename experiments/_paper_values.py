"""The paper's values, by the claim that cites them."""

import csv

from harness import provenance

CLAIMS = provenance.ROOT / "data" / "paper" / "claims.csv"


def paper_values() -> dict[str, float]:
    """The paper's value of each claim, by the claim's id."""
    with CLAIMS.open(encoding="utf-8", newline="") as handle:
        return {row["id"]: float(row["paper_value"]) for row in csv.DictReader(handle)}
