"""Canonical JSON, and digests."""

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """Serialize `value` so that equal values give equal bytes: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_bytes(data: bytes) -> str:
    """Hexadecimal sha256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: Any) -> str:
    """Hexadecimal sha256 of a value's canonical JSON."""
    return sha256_bytes(canonical_json(value).encode())
