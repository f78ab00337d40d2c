"""Imports of tests and tools, inside of functions too: mypy reads the packages alone, and no test runs all tools."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OWN = ("memlm_cli", "pipelines", "stages", "tests")
FILES = sorted(file for folder in ("tests", "docs") for file in (ROOT / folder).rglob("*.py"))


def file_of(module: str) -> Path | None:
    """The file of one of our modules; None: there is none."""
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


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
            elif name and file_of(f"{module}.{name}") is None and (file is None or name not in names_of(file)):
                yield f"line {node.lineno}: {module}.{name}"


def test_what_is_imported_is_there() -> None:
    found = {str(file.relative_to(ROOT)): list(broken(ast.parse(file.read_text("utf-8")))) for file in FILES}
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize("line", ["import stages.nowhere", "from stages.errors import Nothing", "import tests.none.at"])
def test_a_broken_import_is_seen_inside_of_a_function(line: str) -> None:
    assert list(broken(ast.parse(f"def later():\n    {line}\n    from stages.errors import UsageError\n")))
