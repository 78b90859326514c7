"""Every field of a recipe does something and is shown, read from the source."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import fields

from experiments import contents
from harness.spec import Recipe
from tests.test_layers import SOURCES, package_of

FIELDS = {field.name for field in fields(Recipe)}
#: Fields without a column of their own → where a reader of the tables finds them.
NOT_COLUMNS: Mapping[str, str] = {
    "name": "the column `recipe`",
    "prefetch": "the column `settings`, in the loader's words",
    "pin_memory": "the columns `device_kind` and `engine` decide it by default",
    "torch_threads": "only the recipe `cpu` sets it: conf/recipe/cpu.yaml",
}
#: Fields that are read by a property of the recipe alone.
PROPERTIES: Mapping[str, str] = {"pin_memory": "pins"}


def attributes_of_recipes(source: str) -> Iterator[str]:
    """`decoder` of `recipe.decoder`, `cell.recipe.decoder` and the like."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if name.lower().endswith("recipe"):
                yield node.attr


def fields_read() -> set[str]:
    """What the code that runs reads; a field that is only checked or printed does nothing."""
    return {
        name
        for module, path in SOURCES.items()
        if package_of(module) in ("wallclock", "harness") or module.endswith(".measure")
        if module not in ("wallclock.recipe", "harness.spec")
        for name in attributes_of_recipes(path.read_text(encoding="utf-8"))
    }


def columns() -> set[str]:
    """The columns of all tables."""
    return {
        column
        for name in (*contents.ORDER, *contents.ON_REQUEST)
        for names in contents.load(name).TABLES.values()
        for column in names
    }


def test_something_reads_every_field() -> None:
    read = fields_read()
    assert {name for name in FIELDS if PROPERTIES.get(name, name) not in read} == set()


def test_every_field_is_a_column_or_the_reason_is_said() -> None:
    assert FIELDS - columns() == set(NOT_COLUMNS), "add it to a table's columns, or to NOT_COLUMNS"
