"""The texts that a page is about: how much of which files or records each split is."""

from collections.abc import Iterator, Sequence

from stages.artifacts.artifact import Artifact
from stages.numbers import number
from stages.pages.lineage import Member, in_order
from stages.text.names import names_in

MOST_NAMED = 3
"""Files, or records, of which a split is said to be."""


def text_lines(members: Sequence[Member]) -> list[str]:
    """`wiki.txt: train 172,117, test 2,619 tokens`, of each tokens artifact in a lineage that is still there."""
    found = [member.artifact for member in members if member.kind == "tokens"]
    return [line for tokens in found if tokens is not None for line in _lines(tokens)]


def _lines(tokens: Artifact) -> Iterator[str]:
    """One for each part of the text: splits of the same files stand together."""
    by_files: dict[str, list[str]] = {}
    for split in in_order(tokens.metrics["splits"]):
        count = number(tokens.metrics["splits"][split]["tokens"])
        by_files.setdefault(_files(names_in(tokens.path, split)), []).append(f"{split} {count}")
    for files, splits in by_files.items():
        yield f"{files or tokens.reference}: {', '.join(splits)} tokens"


def _files(names: Sequence[str]) -> str:
    """`a.txt, b.txt, c.txt and 4 more`."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
