"""A list's other columns, which each part carries along: which they are, and that they may be."""

from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wallclock.errors import SourceError, first_line
from wallclock.job.items import Items
from wallclock.job.part import ROWS
from wallclock.job.texts import add_to_digest

#: In a dataset's identity the names of its columns; and the digest of their types and values.
CARRIES, CARRIED = "carries", "carried_values"
#: The columns of every part; not every reader tells capitals from small letters.
_OWN = {"vector", *ROWS.names}
_FIRST = pa.array([0])


def check(items: Items) -> None:
    """Raise SourceError, in one line, where a column is called as one of the dataset."""
    for name in items.carried.column_names:
        if name.lower() in _OWN:
            why = f"the list's column {name} has the name of a column of the dataset"
            raise SourceError(f"{why}; rename it in the list, or leave it out")


def described(items: Items) -> dict[str, Any]:
    """What there is to say of them: their names, and a digest of types and values.

    Raises SourceError: a column has values that cannot be carried along.
    """
    digest = sha256()
    names = items.carried.column_names
    for name, column in zip(names, items.carried.columns, strict=True):
        digest.update(repr((name, str(column.type), len(column))).encode())
        try:
            column[:1].take(_FIRST)
            pq.write_table(pa.table([column[:1]], [name]), pa.BufferOutputStream())
            add_to_digest(digest, column)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            # Arrow takes no rows of some types, and Parquet has not all of them; Python has no such
            # date, or no such time zone.
            why = f"the list's column {name} ({column.type}) cannot be carried along"
            fix = "store it as text, or leave it out"
            raise SourceError(f"{why}: {first_line(error)}; {fix}") from error
    return {CARRIES: names, CARRIED: digest.hexdigest() if names else ""}
