"""Two reports of one text whose tokenizers differ, compared by the word and by the character."""

from dataclasses import asdict
from typing import Any

import numpy as np

from stages.comparison.bootstrap import Bootstrap
from stages.comparison.lengths import UNITS, lengths
from stages.comparison.places import Places, scored_places
from stages.comparison.scores import TokenScores
from stages.comparison.settings import ComparisonSettings
from stages.errors import ArtifactError, UsageError
from stages.evaluation.metrics import perplexity

TOKENS_AT_ONCE = 1 << 19


def compare_text(a: TokenScores, b: TokenScores, settings: ComparisonSettings) -> dict[str, Any]:
    """What a comparison on the same text shows; see docs/compare.md for its fields.

    Raises: UsageError if blocks of tokens are asked for, ArtifactError if no length of the documents is known.
    """
    if settings.block_tokens is not None:
        raise UsageError("Blocks of tokens do not line up where tokenizers differ: leave --block-tokens out.")
    sides = [scored_places(scores.tokens, scores.split, scores.counted) for scores in (a, b)]
    unit = "paragraph" if sides[0].documents_with_tokens() == 1 and a.counted == "all" else "document"
    offsets = [_offsets(places, unit) for places in sides]
    units = _units(a, b, sides, offsets)
    nll_a, nll_b = (_nll(*side) for side in zip((a, b), sides, offsets, strict=True))
    weights = np.stack(list(units.values()), axis=1).astype(np.float64)
    held = weights.any(axis=1)
    bootstrap = Bootstrap(settings.samples, settings.confidence, settings.seed)
    difference = nll_b - nll_a
    totals = np.repeat(difference[held, None], len(units), axis=1)
    intervals = bootstrap.intervals(totals, weights[held])
    return {
        "paired_on": "text",
        "tokens_a": len(a),
        "tokens_b": len(b),
        "unknown_rate_a": a.tokens.metrics["splits"][a.split]["unknown_rate"],
        "unknown_rate_b": b.tokens.metrics["splits"][b.split]["unknown_rate"],
        "per": [
            _unit_facts(name, int(units[name].sum()), float(nll_a.sum()), float(nll_b.sum()), interval)
            for name, interval in zip(units, intervals, strict=True)
        ],
        "bootstrap": {
            **asdict(bootstrap),
            "unit": unit,
            "units": int(held.sum()),
            "units_won": int((difference[held] < 0).sum()),
        },
    }


def _offsets(places: Places, unit: str) -> np.ndarray:
    """Where documents or paragraphs begin, then where the last ends, int64 [U + 1]."""
    if unit == "document":
        return places.doc_offsets
    return np.concatenate([np.zeros(1, np.int64), np.asarray(places.split.paragraph_ends[:])])


def _nll(scores: TokenScores, places: Places, offsets: np.ndarray) -> np.ndarray:
    """Negative log-likelihoods summed over each document or paragraph, nats, float64 [U]."""
    sums = np.zeros(len(offsets) - 1)
    for start in range(0, len(places), TOKENS_AT_ONCE):
        stop = min(start + TOKENS_AT_ONCE, len(places))
        units = np.searchsorted(offsets, places.read(start, stop), side="right") - 1
        first, last = int(units[0]), int(units[-1])
        sums[first : last + 1] += np.bincount(units - first, scores.nll(start, stop))
    return sums


def _units(a: TokenScores, b: TokenScores, sides: list[Places], offsets: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Words and characters of each document or paragraph, int64 [U] each, as far as one of the tokenizers tells."""
    if a.counted == "last-word":
        return {"word": _passages(a, b, sides)}
    found: dict[str, np.ndarray] = {}
    for scores, own in zip((a, b), offsets, strict=True):
        if len(found) < len(UNITS):
            found = lengths(scores.tokens, scores.split, own) | found
    if not found:
        raise ArtifactError(
            f"{a.report.reference} and {b.report.reference} are of tokens that tell neither the words nor the "
            f"characters of a document ({a.tokens.reference}, {b.tokens.reference}), so that no mean compares. "
            "Tokenize with word, char, byte, bpe or a tokenizer that keeps white space."
        )
    return {unit: found[unit] for unit in UNITS if unit in found}


def _passages(a: TokenScores, b: TokenScores, sides: list[Places]) -> np.ndarray:
    """Whether the last word of each document counts, int64 [D]."""
    of_a, of_b = (_documents_scored(places) for places in sides)
    if not np.array_equal(of_a, of_b):
        raise ArtifactError(
            f"{a.report.reference} and {b.report.reference} score the last words of other documents of {a.split}."
        )
    return of_a


def _documents_scored(places: Places) -> np.ndarray:
    assert places.chosen is not None
    scored = np.zeros(len(places.doc_offsets) - 1, np.int64)
    scored[places.documents(places.chosen)] = 1
    return scored


def _unit_facts(
    unit: str, count: int, nll_a: float, nll_b: float, interval: tuple[float, float] | None
) -> dict[str, Any]:
    """Means by one unit, and how they differ; ratios are of exp(nats a unit)."""
    difference = (nll_b - nll_a) / count
    return {
        "unit": unit,
        "count": count,
        "nll_a": nll_a / count,
        "nll_b": nll_b / count,
        "difference": difference,
        "interval": None if interval is None else list(interval),
        "perplexity_ratio": perplexity(difference, 1),
        "perplexity_ratio_interval": None if interval is None else [perplexity(edge, 1) for edge in interval],
    }
