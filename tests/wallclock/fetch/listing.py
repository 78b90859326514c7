"""A store that answers ListObjectsV2 over keys, sorted by the bytes of UTF-8 as S3 sorts."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from urllib.parse import parse_qs, quote, urlsplit
from xml.sax.saxutils import escape

from tests.threaded_server import FileHandler, ThreadedServer

#: Keys of a page at most, as S3 has it.
PAGE = 1000
_XML = {"Content-Type": "application/xml"}
_OBJECT = (
    "<Contents><Key>{}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
    "<ETag>&quot;{:032x}&quot;</ETag><Size>12345</Size><StorageClass>STANDARD</StorageClass>"
    "</Contents>"
)


class ListingServer(ThreadedServer):
    """Every bucket has the same keys.

    Args:
        keys: sorted by their bytes, each once.
        page: keys of a page at most.
    """

    def __init__(self, keys: Sequence[str], page: int = PAGE) -> None:
        super().__init__(_Handler)
        self.keys, self.page = keys, page


class _Handler(FileHandler):
    server: ListingServer

    def answer(self) -> None:
        """A page, or 404 for anything else."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if query.get("list-type") != "2":
            self.reply(404, {"Content-Length": "0"}, b"")
            return
        body = _page(self.server.keys, query, self.server.page).encode()
        self.reply(200, {**_XML, "Content-Length": str(len(body))}, body)


def _page(keys: Sequence[str], query: dict[str, str], most: int) -> str:
    """The answer to a request, as S3's reference of ListObjectsV2 has it."""
    prefix = query.get("prefix", "").encode()

    def beginning(key: str) -> bytes:
        return key.encode()[: len(prefix)]

    token = query.get("continuation-token")
    after = bytes.fromhex(token) if token else query.get("start-after", "").encode()
    first = bisect_left(keys, prefix, key=beginning)
    last = bisect_right(keys, prefix, first, key=beginning)
    if after:
        first = bisect_right(keys, after, first, last, key=str.encode)
    end = min(last, first + min(most, int(query.get("max-keys", most))))
    listed = [(at, keys[at]) for at in range(first, end)]
    is_url = query.get("encoding-type") == "url"
    parts = ["<EncodingType>url</EncodingType>"] if is_url else []
    parts += [_OBJECT.format(quote(key) if is_url else escape(key), at) for at, key in listed]
    if end < last:
        token = listed[-1][1].encode().hex()
        parts.append(f"<NextContinuationToken>{token}</NextContinuationToken>")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{str(end < last).lower()}</IsTruncated>{''.join(parts)}"
        "</ListBucketResult>"
    )
