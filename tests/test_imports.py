"""Imports of tests and tools, inside of functions too: mypy reads the packages alone, and no test
runs all tools.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OWN = ("memlm_cli", "pipelines", "stages", "tests")
FILES = sorted(file for folder in ("tests", "docs") for file in (ROOT / folder).rglob("*.py"))
DOTTED = re.compile(r"(?:memlm_cli|pipelines|stages)(?:\.\w+){2,}")
"""A text that names something of ours, as those of `setattr` do."""


def file_of(module: str) -> Path | None:
    """The file of one of our modules; None: there is none."""
    path = ROOT / module.replace(".", "/")
    return next(
        (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None
    )


@cache
def names_of(file: Path) -> frozenset[str]:
    """Names that a module has, wherever it gives them."""
    found = set[str]()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(one.asname or one.name).split(".")[0] for one in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(found)


def broken(tree: ast.AST) -> Iterator[str]:
    """Imports from our packages, at any depth, of what is not there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted = [(one.name, None) for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted = [(node.module, one.name) for one in node.names]
        else:
            continue
        for module, name in wanted:
            if module.split(".")[0] not in OWN:
                continue
            file = file_of(module)
            if file is None and not (ROOT / module.replace(".", "/")).is_dir():
                yield f"line {node.lineno}: {module}"
            elif (
                name
                and file_of(f"{module}.{name}") is None
                and (file is None or name not in names_of(file))
            ):
                yield f"line {node.lineno}: {module}.{name}"


def test_what_is_imported_is_there() -> None:
    found = {
        str(file.relative_to(ROOT)): list(broken(ast.parse(file.read_text("utf-8"))))
        for file in FILES
    }
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line", ["import stages.nowhere", "from stages.errors import Nothing", "import tests.none.at"]
)
def test_a_broken_import_is_seen_inside_of_a_function(line: str) -> None:
    assert list(
        broken(ast.parse(f"def later():\n    {line}\n    from stages.errors import UsageError\n"))
    )


def named(tree: ast.AST) -> Iterator[tuple[str, Path | None, str]]:
    """Texts that are dotted names of ours, the module that each begins with, and the name in it;
    empty: none.
    """
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and DOTTED.fullmatch(node.value)
        ):
            parts = node.value.split(".")
            modules = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
            module = next((one for one in modules if file_of(one)), "")
            rest = parts[module.count(".") + 1 :]
            yield node.value, file_of(module), rest[0] if rest else ""


@cache
def read_in(file: Path) -> frozenset[str]:
    """Names that a module reads as its own."""
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    return frozenset(
        one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    )


@cache
def read_of_modules() -> frozenset[str]:
    """Names that some module of ours reads of another when it runs: `module.NAME`, or by an import
    in a function.
    """
    files = (file for folder in OWN for file in (ROOT / folder).rglob("*.py") if folder != "tests")
    trees = [ast.parse(file.read_text("utf-8")) for file in files]
    attributes = {
        one.attr for tree in trees for one in ast.walk(tree) if isinstance(one, ast.Attribute)
    }
    functions = (
        one for tree in trees for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)
    )
    imports = (
        one
        for function in functions
        for one in ast.walk(function)
        if isinstance(one, ast.ImportFrom)
    )
    return frozenset(attributes | {alias.name for one in imports for alias in one.names})


def lost(tree: ast.AST) -> Iterator[str]:
    """Dotted names of what is not there, and of constants that are not read where a test would
    replace them.
    """
    for text, file, name in named(tree):
        if not name:
            continue
        if file is None or name not in names_of(file):
            yield text
        elif name.isupper() and name not in read_in(file) | read_of_modules():
            yield f"{text} is read nowhere"


def test_what_a_text_names_is_there_and_is_read_there() -> None:
    found = {
        str(file.relative_to(ROOT)): list(lost(ast.parse(file.read_text("utf-8"))))
        for file in FILES
    }
    assert {file: texts for file, texts in found.items() if texts} == {}


def test_a_name_that_was_moved_is_seen() -> None:
    moved = [
        f"stages.{rest}"
        for rest in ("text.spool.NOTHING", "nowhere.SIZE", "artifacts.kinds.USED_UP")
    ]
    assert list(lost(ast.parse(f"names = {moved!r}"))) == [
        *moved[:2],
        f"{moved[2]} is read nowhere",
    ]
