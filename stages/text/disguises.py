"""Records and pages that are named as text: refused, with a way to what is in them."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain

from stages.errors import DataError
from stages.text.files import without_compression

LOOKED_AT = 2**16
"""Characters at the beginning of a file that are looked at."""
NAMED_FIELDS = 8
"""Most fields that a message names."""
PAGES = (".html", ".htm", ".xhtml")
NOTEBOOK = ".ipynb"
JSON = ".json"


def require_prose(path: str, blocks: Iterable[str]) -> Iterator[str]:
    """The blocks of a text file, unchanged.

    Raises: DataError with a cure if the file holds records or web pages, whose braces and
        tags would be learnt as text.
    """
    remaining = iter(blocks)
    begun = []
    length = 0
    for block in remaining:
        begun.append(block)
        length += len(block)
        if length >= LOOKED_AT:
            break
    problem = disguise(path, "".join(begun)[:LOOKED_AT])
    if problem is not None:
        raise DataError(f"{path} {problem}.")
    yield from chain(begun, remaining)


def disguise(path: str, beginning: str) -> str | None:
    """Description of a file that is no text, with its cure; None: it is text.

    >>> disguise("a.txt", "WARC/1.0")
    'is a web archive, not text; take the text out first, as trafilatura does'
    """
    name = without_compression(path).lower()
    start = beginning.lstrip()
    if start.startswith("WARC/1"):
        return "is a web archive, not text; take the text out first, as trafilatura does"
    if name.endswith(PAGES) or start[:15].lower().startswith(("<!doctype html", "<html")):
        return "is a web page, not text; convert it first, as pandoc -t plain does"
    if name.endswith(NOTEBOOK) and start.startswith("{"):
        return "is a notebook, not text; take its cells out first, as jupyter nbconvert --to markdown does"
    fields = _fields_of_lines(start)
    if fields is not None:
        texts = f"--column NAME, of {_listed(fields)}"
        return (
            "is JSON lines, not text; call the file .jsonl, or read its records with "
            f"tokenize --documents jsonl (and {texts})"
        )
    if name.endswith(JSON) and is_json_array(start):
        return ARRAY
    return None


ARRAY = (
    "is one JSON array, not a record a line; write its records as lines first, as jq -c '.[]' does, and "
    "call the file .jsonl"
)


def is_json_array(start: str) -> bool:
    """Whether a text begins as an array of JSON objects."""
    return start.startswith("[") and start[1:].lstrip().startswith("{")


def _fields_of_lines(start: str) -> list[str] | None:
    """Fields that hold texts in the first of two lines that are JSON objects; None: they are not."""
    lines = [line for line in start.splitlines() if line.strip()]
    if len(lines) < 2:
        return None
    first_line, second_line = lines[:2]
    # other JSON than an object is no record
    if not first_line.startswith("{") or not second_line.startswith("{"):
        return None
    try:
        first = json.loads(first_line)
        second = json.loads(second_line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(second, dict):
        return None
    return [field for field, value in first.items() if isinstance(value, str)]


def _listed(fields: list[str]) -> str:
    more = ", …" if len(fields) > NAMED_FIELDS else ""
    return ", ".join(field[:40] for field in fields[:NAMED_FIELDS]) + more
