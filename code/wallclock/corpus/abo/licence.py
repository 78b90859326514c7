"""The licence of the images: the bucket's own files, kept with their digests, and whom to credit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wallclock.corpus.abo.store import GoneError, Receipt
from wallclock.errors import UserError
from wallclock.files import pretty_json, sha256_file, write_bytes, write_text

#: What the bucket may hold, the licence before the file that speaks of it. The dataset's paper says
#: CC BY-NC 4.0, as did an earlier release: which file was relied on is recorded.
FILES = {
    "LICENSE-CC-BY-4.0.txt": "CC BY 4.0",
    "LICENSE-CC-BY-NC-4.0.txt": "CC BY-NC 4.0",
    "README.md": "as its README.md says",
}
#: The credit that ABO's README asks for, where this store has no README to take it from.
ATTRIBUTION = (
    "Credit for the data, including all images and 3d models, must be given to: Amazon.com. Credit for building the "
    "dataset, archives and benchmark sets must be given to: Matthieu Guillaumin (Amazon.com), Thomas Dideriksen "
    "(Amazon.com), Kenan Deng (Amazon.com), Himanshu Arora (Amazon.com), Jasmine Collins (UC Berkeley) and "
    "Jitendra Malik (UC Berkeley)"
)
_MAX_BYTES = 1_000_000
_MAX_CREDIT = 2_000
_SECTION = re.compile(r"^#+ *Attribution *\n(.*?)(?=^#|\Z)", re.DOTALL | re.MULTILINE)

#: GETs one small object into memory, retried; raises as `Store.get` does.
Get = Callable[[str, int], tuple[bytes, Receipt]]


def fetch(get: Get, folder: Path, source: str) -> None:
    """Keep the bucket's licence files in `folder`, and `licence.json` beside them; nothing if that is there.

    Args:
        source: the store, for the record.
    """
    about = folder / "licence.json"
    if _whole(about):
        return
    files = []
    for name in FILES:
        try:
            data, receipt = get(name, _MAX_BYTES)
        except GoneError:
            continue
        write_bytes(folder / name, data)
        files.append(
            {"name": name, "bytes": len(data), "sha256": receipt.sha256, "etag": receipt.etag}
        )
    names = [str(file["name"]) for file in files]
    relied_on = names[0] if names else ""
    plain = {
        "source": source,
        "files": files,
        "relied_on": relied_on
        or "none: this store has no licence file; ABO's own bucket says CC BY 4.0",
        "licence": FILES.get(relied_on, "CC BY 4.0"),
        "attribution": _attribution(folder / "README.md") if "README.md" in names else ATTRIBUTION,
    }
    write_text(about, pretty_json(plain))


def credit(folder: Path) -> dict[str, Any]:
    """Licence, attribution, and the files they rest on; empty before the corpus was fetched."""
    try:
        plain = json.loads((folder / "licence.json").read_text(encoding="utf-8"))
        return {
            name: plain[name] for name in ("source", "licence", "relied_on", "attribution", "files")
        }
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder / 'licence.json'} is damaged; delete it and run the same command again"
        ) from error


def _whole(about: Path) -> bool:
    """Whether the licence was fetched, and its files are as they came."""
    try:
        files = json.loads(about.read_text(encoding="utf-8"))["files"]
        return all(sha256_file(about.parent / file["name"]) == file["sha256"] for file in files)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _attribution(readme: Path) -> str:
    """The README's section of that name as one line, or ABO's known one."""
    found = _SECTION.search(readme.read_text(encoding="utf-8", errors="replace"))
    text = " ".join(re.sub(r"^ *>", "", found[1], flags=re.MULTILINE).split()) if found else ""
    return text[:_MAX_CREDIT] or ATTRIBUTION
