"""What the tars and tables of a job had when they were listed, which may be to read them whole.

OUT keeps it in one file, with its sha256 in front; it holds while the shards have the same names
and versions.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wallclock.errors import VERSION
from wallclock.job.dataset import THREADS
from wallclock.job.items import Items
from wallclock.job.records import PLACE, Stream
from wallclock.job.stores import Store
from wallclock.outside import values_without_secrets
from wallclock.recipe import Limits

_FILE, _ABOUT, _COLUMN = "_listing", b"wallclock", "\0version"
_SHA256 = sha256().digest_size


def keep(store: Store, items: Items) -> None:
    """Write what was listed, where all shards have a version."""
    stream = items.stream
    if not (stream and items.is_whole and all(stream.versions)):
        return
    about = {
        "shards": _shards(stream.names, stream.limits),
        "versions": stream.versions,
        "faults": [*items.faults.items()],
        "others": items.others,
    }
    table = pa.table({"id": items.ids, PLACE: items.where, _COLUMN: items.versions})
    for name in items.carried.column_names:
        table = table.append_column(items.carried.field(name), items.carried[name])
    said = json.dumps(values_without_secrets(about)).encode()
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({_ABOUT: said}), sink)
    data = sink.getvalue().to_pybytes()
    store.write(_FILE, sha256(data).digest() + data)


def kept(
    store: Store, names: Sequence[str], limits: Limits, version_of: Callable[[str], str]
) -> Items | None:
    """What was kept of these shards; None: nothing, or of others, or they have changed."""
    try:
        data = store.read(_FILE)
    except OSError:
        return None
    if sha256(data[_SHA256:]).digest() != data[:_SHA256]:
        return None
    table = pq.read_table(pa.BufferReader(data[_SHA256:]))
    about = json.loads(table.schema.metadata[_ABOUT])
    if about["shards"] != _shards(names, limits):
        return None
    with ThreadPoolExecutor(THREADS) as pool:
        if about["versions"] != [*pool.map(version_of, names)]:
            return None
    return Items(
        table["id"],
        table[PLACE],
        table[_COLUMN],
        carried=table.drop_columns(["id", PLACE, _COLUMN]).replace_schema_metadata(),
        others=tuple(about["others"]),
        faults=dict(about["faults"]),
        stream=Stream(names, limits, about["versions"]),
    )


def _shards(names: Sequence[str], limits: Limits) -> list[Any]:
    return [VERSION, limits.max_bytes, *values_without_secrets(list(names))]
