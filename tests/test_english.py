"""Docstrings begin with a noun or a verb: a fragment that begins with "What" or "Of" hides the noun."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FRAGMENT = re.compile(r"(What|Of)\b")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
EXAMPLE = '''
A = 1
"""Of a."""
class B:
    """What b is."""
    c: int
    """Of c."""
    def d(self):
        """What d is."""
        return "Of no docstring"
'''


def docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring: of the module, classes and functions, and those under an assignment."""
    for node in ast.walk(module):
        body = node.body if isinstance(node, DOCUMENTED) else []
        for before, statement in zip([node, *body], body, strict=False):
            text = statement.value if isinstance(statement, ast.Expr) else None
            if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
                continue
            if before is node or isinstance(before, ast.Assign | ast.AnnAssign):
                yield statement.lineno, text.value


def test_no_docstring_begins_with_what_or_of() -> None:
    files = [file for room in ("memlm_cli", "pipelines", "stages") for file in (ROOT / room).rglob("*.py")]
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in files
        for line, text in docstrings(ast.parse(file.read_text("utf-8")))
        if FRAGMENT.match(text)
    ]
    assert len(files) > 300 and not found


def test_fragments_are_found_wherever_a_docstring_stands() -> None:
    assert [line for line, text in docstrings(ast.parse(EXAMPLE)) if FRAGMENT.match(text)] == [3, 5, 7, 9]
