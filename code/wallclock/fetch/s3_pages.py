"""Pages of a bucket's list, read in a tenth of the time that botocore takes.

botocore looks up the type of each field of each object, and makes a date of each `LastModified`,
with the interpreter's lock held: several threads would only take turns.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree

#: The event before botocore parses an answer; older versions have none, and parse as ever.
EVENT = "before-parse.s3.ListObjectsV2"
_PAGE = "ListBucketResult"
_TEXTS = frozenset({"NextContinuationToken", "EncodingType"})


def read_page(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Put a page's objects into what botocore returns, and leave it nothing to parse.

    All fields of an object are texts. What is no page, such as an error, stays as it is.
    """
    if response_dict["status_code"] != 200:
        return
    with suppress(ElementTree.ParseError):
        root = ElementTree.fromstring(response_dict["body"])
        if _name(root) == _PAGE:
            customized_response_dict |= _fields(root)
            response_dict["body"] = f"<{_PAGE}/>".encode()


def _fields(root: ElementTree.Element) -> Mapping[str, Any]:
    contents: list[Mapping[str, str]] = []
    page: dict[str, Any] = {"IsTruncated": False, "Contents": contents}
    for node in root:
        name = _name(node)
        if name == "Contents":
            contents.append({_name(field): field.text or "" for field in node})
        elif name == "IsTruncated":
            page[name] = node.text == "true"
        elif name in _TEXTS:
            page[name] = node.text or ""
    return page


def _name(node: ElementTree.Element) -> str:
    """A tag without its namespace."""
    return node.tag.rpartition("}")[2]
