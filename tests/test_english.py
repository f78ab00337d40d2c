"""Plain English: docstrings begin with a noun or a verb, and documents have short sentences in
common words.

A fragment that begins with "What", "Of" or "That" hides the noun. A sentence of more than 20 words
holds two ideas.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FRAGMENT = re.compile(r"(What|Of|That|Those|Whose|So|And|Without)\b")
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
    """Line and text of every docstring: of the module, classes and functions, and those under an
    assignment.
    """
    for node in ast.walk(module):
        body = node.body if isinstance(node, DOCUMENTED) else []
        for before, statement in zip([node, *body], body, strict=False):
            text = statement.value if isinstance(statement, ast.Expr) else None
            if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
                continue
            if before is node or isinstance(before, ast.Assign | ast.AnnAssign):
                yield statement.lineno, text.value


def test_no_docstring_begins_with_a_word_that_hides_the_noun() -> None:
    files = [
        file
        for room in ("memlm_cli", "pipelines", "stages")
        for file in (ROOT / room).rglob("*.py")
    ]
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in files
        for line, text in docstrings(ast.parse(file.read_text("utf-8")))
        if FRAGMENT.match(text)
    ]
    assert len(files) > 300 and not found


def test_fragments_are_found_wherever_a_docstring_stands() -> None:
    assert [line for line, text in docstrings(ast.parse(EXAMPLE)) if FRAGMENT.match(text)] == [
        3,
        5,
        7,
        9,
    ]


LONGEST = 20
"""Words of a sentence, or of a part of it between colons and semicolons."""
LIST = 6
"""Commas of a sentence that is a list of things, which may be longer."""
AVOIDED = ("so many", "of which", "in place of", "goes on from", "kin", "told")
"""Words of a dialect: a number, a relative clause, instead of, resumes."""


def sentences(document: str) -> Iterator[str]:
    """Sentences of a Markdown document, without tables, code, headings and targets of links."""
    text = re.sub(r"<!-- table.*?<!-- end -->|```.*?```", "", document, flags=re.S)
    text = re.sub(r"^(?:    |\||#).*$", "", text, flags=re.M)
    text = re.sub(r"`[^`]*`", "x", re.sub(r"\]\([^)]*\)", "]", text))
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:-|\d+\.) ", text):
        for sentence in re.split(r"(?<=[.?!:;])[*\"”)]*\s+", " ".join(paragraph.split())):
            if re.search(r"\w", sentence):
                yield sentence.removeprefix("- ")


def documents() -> list[Path]:
    return [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
        (ROOT / "docs").rglob("*.md")
    )


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.stem)
def test_documents_have_short_sentences_in_common_words(document: Path) -> None:
    text = document.read_text("utf-8")
    long = [
        one
        for one in sentences(text)
        if len(re.findall(r"\w\S*", one)) > LONGEST and one.count(",") < LIST
    ]
    assert not long, f"{document.name}: {long}"
    found = [word for word in AVOIDED if re.search(rf"\b{word}\b", text)]
    assert not found, f"{document.name}: {found}"


def test_sentences_are_found_between_tables_and_code() -> None:
    assert list(sentences("# T\n\nOne `x`, [two](a.md). Three?\n\n    code\n\n- Four: five")) == [
        "One x, [two].",
        "Three?",
        "Four:",
        "five",
    ]
