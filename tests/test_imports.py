"""Imports of tests and tools, inside of functions too: mypy reads the packages alone, and no test
runs all tools.

Files of the packages are parsed, once each. In tests and tools lines and texts are looked for,
which takes a tenth of the time.
"""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("memlm_cli", "pipelines", "stages")
OURS = (*PACKAGES, "tests")
FILES = sorted(file for folder in ("tests", "docs") for file in (ROOT / folder).rglob("*.py"))
IMPORT = re.compile(
    r"^[ \t]*(?:import[ \t]+[\w.]+.*|from[ \t]+[\w.]+[ \t]+import[ \t]+(?:\([^)]*\)|[^(\n]*))$",
    re.MULTILINE,
)
"""A statement on lines of its own; in a text that is a script, too."""
DOTTED = re.compile(r'"((?:memlm_cli|pipelines|stages)(?:\.\w+){2,})"')
"""A text that names something of ours, as those of `setattr` do."""


class Names(NamedTuple):
    """Names of a module, by what it does with them."""

    given: frozenset[str]
    """Bound anywhere: definitions, imports, assignments."""
    read: frozenset[str]
    """Read as variables."""
    attributes: frozenset[str]
    """Read of another object."""
    imported_late: frozenset[str]
    """Imported inside of a function."""


def file_of(module: str) -> Path | None:
    """The file of one of our modules; None: there is none."""
    path = ROOT / module.replace(".", "/")
    return next(
        (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None
    )


@cache
def names_of(file: Path) -> Names:
    given = set[str]()
    read = set[str]()
    attributes = set[str]()
    imported_late = set[str]()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else given).add(node.id)
        elif isinstance(node, ast.Attribute):
            attributes.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            given.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            given |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            # Statements of functions are indented; so are those of TYPE_CHECKING blocks.
            if node.col_offset:
                imported_late |= {alias.name for alias in node.names}
    return Names(*map(frozenset, (given, read, attributes, imported_late)))


@cache
def read_of_modules() -> frozenset[str]:
    """Names that some module of ours reads of another when it runs: `module.NAME`, or by an import
    in a function.
    """
    files = (file for folder in PACKAGES for file in (ROOT / folder).rglob("*.py"))
    return frozenset().union(
        *(names.attributes | names.imported_late for names in map(names_of, files))
    )


def broken(text: str) -> Iterator[str]:
    """Imports from our packages, at any depth, of what is not there."""
    for statement in IMPORT.findall(text):
        if statement.split()[1].partition(".")[0] not in OURS:
            continue
        (node,) = ast.parse(statement.strip()).body
        wanted: list[tuple[str, str | None]] = []
        if isinstance(node, ast.Import):
            wanted = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            wanted = [(node.module, alias.name) for alias in node.names]
        for module, name in wanted:
            file = file_of(module)
            if file is None and not (ROOT / module.replace(".", "/")).is_dir():
                yield module
            elif (
                name
                and file_of(f"{module}.{name}") is None
                and (file is None or name not in names_of(file).given)
            ):
                yield f"{module}.{name}"


def test_what_is_imported_is_there() -> None:
    found = {str(file.relative_to(ROOT)): list(broken(file.read_text("utf-8"))) for file in FILES}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import stages.nowhere",
        "from stages.errors import Nothing",
        "from stages.errors import (\n    UsageError,\n    Nothing,\n)",
        "import tests.none.at",
    ],
)
def test_a_broken_import_is_seen_inside_of_a_function(line: str) -> None:
    text = f"def later():\n    {line}\n    from stages.errors import UsageError\n"
    assert len(list(broken(text))) == 1


def lost(text: str) -> Iterator[str]:
    """Dotted names of what is not there, and of constants that are not read where a test would
    replace them.
    """
    for dotted in DOTTED.findall(text):
        parts = dotted.split(".")
        modules = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        module = next((candidate for candidate in modules if file_of(candidate)), "")
        file = file_of(module)
        rest = parts[module.count(".") + 1 :]
        if not rest:
            continue
        if file is None or rest[0] not in names_of(file).given:
            yield dotted
        elif rest[0].isupper() and rest[0] not in names_of(file).read | read_of_modules():
            yield f"{dotted} is read nowhere"


def test_what_a_text_names_is_there_and_is_read_there() -> None:
    found = {str(file.relative_to(ROOT)): list(lost(file.read_text("utf-8"))) for file in FILES}
    assert {file: texts for file, texts in found.items() if texts} == {}


def test_a_name_that_was_moved_is_seen() -> None:
    moved = [
        f"stages.{rest}"
        for rest in ("text.spool.NOTHING", "nowhere.SIZE", "artifacts.kinds.USED_UP")
    ]
    assert list(lost(json.dumps(moved))) == [*moved[:2], f"{moved[2]} is read nowhere"]
