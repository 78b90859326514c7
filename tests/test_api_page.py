"""docs/api.md has every public name: a line here, the whole docstring on the site of `make docs`.

`.venv/bin/python -m tests.test_api_page` writes the page anew.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import wallclock
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "api.md"
INTRODUCTION = """\
# Library

Every public name of `wallclock`, made from the docstrings. `make docs` shows them here in full,
with signatures, arguments and errors. So does `help(wallclock.open_images)`.
"""
#: Heading → names: those of `wallclock`, or with the module that has them.
SECTIONS: Mapping[str, Sequence[str]] = {
    "Load images": ("open_images", "Images", "Batch", "Failure", "ImageSources", "as_dataloader"),
    "What a batch is": ("Output", "Workers", "Preprocess", "Augment", "wallclock.recipe.Limits"),
    "One image": ("decode", "loader_for"),
    "Jobs": (
        "embed",
        "wallclock.job.Outcome",
        "wallclock.job.verify.verify",
        "wallclock.job.verify.Verdict",
    ),
    "A service's module": ("wallclock.service.modules.Pixels",),
    "Measure and predict": ("StageProfiler", "predict"),
    "Errors": (
        "wallclock.errors.UserError",
        "wallclock.errors.ImageError",
        "wallclock.errors.Unavailable",
    ),
}
#: Classes whose instances nobody makes: their arguments are nobody's concern.
MADE_BY_OTHERS = ("Images", "wallclock.job.Outcome", "wallclock.job.verify.Verdict")
#: Names of types, which have no docstring: what a `#:` comment says of them.
ALIASES: Mapping[str, str] = {
    "Failure": "wallclock.loader.batch.Failure",
    "ImageSources": "wallclock.loader.images.ImageSources",
}


def resolve(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module) if module else wallclock, attribute)


def comment_of(alias: str) -> str:
    """The `#:` lines above an assignment."""
    module, _, name = alias.rpartition(".")
    pattern = rf"((?:^#: .*\n)+)^{name}\b"
    match = re.search(pattern, inspect.getsource(import_module(module)), re.MULTILINE)
    assert match, alias
    return " ".join(line.removeprefix("#: ") for line in match[1].splitlines())


def summary(name: str) -> str:
    """The first sentence of what a name says of itself."""
    text = comment_of(ALIASES[name]) if name in ALIASES else inspect.getdoc(resolve(name)) or ""
    paragraph = " ".join(text.split("\n\n")[0].split()).replace("::", ":")
    return re.split(r"(?<=[.:]) (?=[A-Z`])", paragraph)[0].replace("|", r"\|")


def directive(name: str) -> str:
    """What the site puts in its place (docs/conf.py)."""
    if name in ALIASES:
        return f"<!-- autodoc: data {ALIASES[name]} -->\n"
    value = resolve(name)
    kind = "function"
    if inspect.ismodule(value):
        kind = "module"
    elif inspect.isclass(value):
        kind = "exception" if issubclass(value, Exception) else "class"
    call = "()" if name in MADE_BY_OTHERS else ""
    return f"<!-- autodoc: {kind} {name if '.' in name else f'wallclock.{name}'}{call} -->\n"


def page() -> str:
    """docs/api.md."""
    parts = [INTRODUCTION]
    for heading, names in SECTIONS.items():
        parts.append(f"\n## {heading}\n\n| name | what it is |\n|---|---|\n")
        parts += [f"| `{name}` | {summary(name)} |\n" for name in names]
        parts += ["\n", *map(directive, names)]
    return "".join(parts)


def test_every_public_name_is_in_the_reference() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(wallclock.__all__) <= set(listed)


def test_every_name_says_what_it_is() -> None:
    for names in SECTIONS.values():
        for name in names:
            assert summary(name), name


def test_the_page_is_as_the_docstrings_say() -> None:
    fix = "run .venv/bin/python -m tests.test_api_page"
    assert PAGE.read_text(encoding="utf-8") == page(), f"an old list of names: {fix}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
