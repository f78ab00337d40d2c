"""Sentences that memory changed most: their source, reference and translations, and the pairs that did it."""

from collections.abc import Iterator, Mapping
from typing import Any

from stages.evaluation.figures.translated import CHANGED
from stages.pages.source import Source
from stages.reports.tables import Cell, Group, Row, Table, figure


def changed_tables(source: Source) -> list[Table]:
    """One table, where a report has such sentences."""
    held = source.files.get(CHANGED, {}).get("sentences", ())
    if not held:
        return []
    name = "" if source.alone else f" of {source.label}"
    caption = (
        "The sentences whose chrF memory changed most. Below each translation stand the pairs that made its tokens "
        "likelier, with the token and what it gained."
    )
    groups = [Group(list(_rows(one)), Cell(one["source"])) for one in held]
    return [Table(f"Sentences that changed most{name}", ("", "Text", "chrF"), groups, caption, frozenset(("Text",)))]


def _rows(one: Mapping[str, Any]) -> Iterator[Row]:
    yield Row([Cell("reference"), Cell(one["reference"]), Cell("")])
    for name, score in zip(("plain", "memory"), one["chrf"], strict=True):
        yield Row([Cell(name), Cell(one[name]), figure(score, "chrf")])
    for pair in one["neighbors"]:
        words = f"{pair['source'] or ''} → {pair['target']}"
        yield Row([Cell(f"{pair['token']} +{pair['gain']:.2f}"), Cell(words, None, f"pair {pair['pair']:,}"), Cell("")])
