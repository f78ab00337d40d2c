"""The control of each row in words: which rows do not beat it, and what was counted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.numbers import joined, number

Figures = Mapping[str, Any]
COUNTING = "counting"
"""The header of the controls in tables."""


def counting(row: Figures) -> float | None:
    """Perplexity of a row's control; None where there is none, as in reports of format 2."""
    found: float | None = (row.get("control") or {}).get("perplexity")
    return found


def counting_on_new_text(row: Figures) -> float | None:
    """The same on the tokens in no paragraph that was read before."""
    found: float | None = (row.get("control") or {}).get("perplexity_on_new_text")
    return found


def worse_than_counting(report: Figures, row: Figures) -> tuple[float | None, float] | None:
    """Perplexity of a row and of its control, where the row does not beat it; else None.

    Both are on new text where some of the text was read before, since counting knows the other text by heart.
    """
    value, limit = row["perplexity"], counting(row)
    outside = report.get("outside_repeated_paragraphs") or {}
    if outside.get("repeated_share") and counting_on_new_text(row) is not None:
        known = {one["row"]: one["perplexity"] for one in outside["rows"]}
        value, limit = known.get(row["row"]), counting_on_new_text(row)
    return None if limit is None or (value is not None and value < limit) else (value, limit)


def beaten_lines(report: Figures, rows: Sequence[Figures]) -> Iterator[str]:
    """That some rows give no more than counting in the text that they may read."""
    found = [(row["row"], worse_than_counting(report, row)) for row in rows]
    beaten = [f"{name} ({_value(pair[0])}, counting {number(pair[1])})" for name, pair in found if pair is not None]
    if not beaten:
        return
    repeated = (report.get("outside_repeated_paragraphs") or {}).get("repeated_share")
    do, they, read = ("does", "it", "reads") if len(beaten) == 1 else ("do", "they", "read")
    yield (
        f"{joined(beaten)} {do} not beat a trigram of the same text{' on new text' if repeated else ''}: what {they} "
        f"may gain is in the text that {they} {read}, and counting finds more of it"
    )


def _value(perplexity: float | None) -> str:
    return "diverges" if perplexity is None else number(perplexity)


def counted_line(report: Figures) -> Iterator[str]:
    """Which text each control counts in, where rows differ by that."""
    rows = [row for row in report["rows"] if row.get("control")]
    told: dict[str, list[str]] = {}
    for row in rows:
        told.setdefault(_counted(row["control"]), []).append(row["row"])
    if len(told) > 1 or any(counting(row) is None for row in rows):
        each = (f"{joined(names)}, {text}" for text, names in told.items())
        yield f"{COUNTING}: a trigram of all the text that a row may read: {'; '.join(each)}"


def _counted(control: Figures) -> str:
    """`train of tokens/3f9a1c2b7d4e and what was scored before (weight 0.21, fitted on valid)`."""
    texts = [f"{text['split']} of {text['corpus']}" for text in control["texts"]]
    if control["past"] is not None:
        where = "in the same document" if control["past"] == "document" else "before"
        texts.append(f"what was scored {where}{_weight(control)}")
    tokens = sum(text["tokens"] for text in control["texts"])
    dropped = f" (not counted: {tokens:,} tokens are too many)" if control["perplexity"] is None else ""
    return f"{joined(texts)}{dropped}"


def _weight(control: Figures) -> str:
    if control["weight"] is None:
        return ""
    fitted = "" if control["tune_split"] is None else f", fitted on {control['tune_split']}"
    return f" (weight {control['weight']:.2g}{fitted})"
