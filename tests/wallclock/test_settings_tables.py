"""The tables of settings in the documents are what the settings' fields say.

`.venv/bin/python -m tests.wallclock.test_settings_tables` writes them anew.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import ROOT
from wallclock.constraints import Setting, describe
from wallclock.job.settings import JobSettings, VerifySettings
from wallclock.service.modules import Embedding
from wallclock.service.settings import ServiceSettings, describe_module

#: Document → name in its marker → the settings of the table below it.
TABLES: Mapping[str, Mapping[str, Callable[[], list[Setting]]]] = {
    "docs/embed.md": {
        "JobSettings": partial(describe, JobSettings),
        "VerifySettings": partial(describe, VerifySettings),
    },
    "docs/service.md": {
        "ServiceSettings": partial(describe, ServiceSettings),
        "Embedding": partial(describe_module, Embedding),
    },
}
MARKER = re.compile(r"(<!-- settings: (\w+) -->\n)((?:\|.*\n)*)")


def table_of(settings: list[Setting]) -> str:
    rows = ["| setting | default | what | allowed |", "|---|---|---|---|"]
    for setting in settings:
        default = f"`{setting.default}`" if setting.default else ""
        rows.append(f"| `{setting.name}` | {default} | {setting.meaning} | {setting.allowed} |")
    return "".join(f"{row}\n" for row in rows)


def rewritten(document: str) -> str:
    """The document with the tables as they should be."""
    tables = TABLES[document]
    text = Path(ROOT / document).read_text(encoding="utf-8")
    return MARKER.sub(lambda match: match[1] + table_of(tables[match[2]]()), text)


@pytest.mark.parametrize("document", TABLES)
def test_tables_are_as_the_fields_say(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert {match[2] for match in MARKER.finditer(text)} == set(TABLES[document])
    fix = "run .venv/bin/python -m tests.wallclock.test_settings_tables"
    assert rewritten(document) == text, f"{document} has an old table of settings: {fix}"


if __name__ == "__main__":
    for name in TABLES:
        content = rewritten(name)
        (ROOT / name).write_text(content, encoding="utf-8")
