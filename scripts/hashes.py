"""Prints each pin of the locks with the sha256 of all its files: `python hashes.py LOCK …`.

torch and what is built for it are left out: which of their builds fits differs between machines.
"""

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

from pip._vendor.packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from pip._vendor.packaging.version import InvalidVersion, Version

INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
BUILT_FOR_TORCH = ("torch", "torchvision", "torchcodec")


def version_of(file: str) -> Version | None:
    """The version of a wheel or of sources; None of older kinds of files."""
    try:
        parse = parse_wheel_filename if file.endswith(".whl") else parse_sdist_filename
        return parse(file)[1]
    except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion):
        return None


def line_of(pin: str) -> str:
    """`name==version --hash=sha256:… …`."""
    name, _, version = pin.partition("==")
    address = f"{INDEX}/{canonicalize_name(name)}/"
    request = Request(address, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urlopen(request, timeout=60) as answer:
        files = json.load(answer)["files"]
    digests = {
        file["hashes"]["sha256"]
        for file in files
        if version_of(file["filename"]) == Version(version)
    }
    if not digests:
        sys.exit(f"hashes: {INDEX} has no file of {pin}")
    return " ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(digests))])


def pins(locks: list[str]) -> Iterator[str]:
    """The pins of the locks for which there are hashes."""
    for lock in locks:
        for line in Path(lock).read_text("utf-8").splitlines():
            if "==" in line and line.partition("==")[0] not in BUILT_FOR_TORCH:
                yield line


if __name__ == "__main__":
    with ThreadPoolExecutor(8) as pool:
        print(*pool.map(line_of, sorted({*pins(sys.argv[1:])}, key=str.lower)), sep="\n")
