"""Comparison of two reports on one text whose tokenizers differ, per word and per character."""

from dataclasses import asdict, dataclass
from itertools import pairwise
from math import log
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.comparison.settings import ComparisonSettings
from stages.errors import ArtifactError, UsageError
from stages.evaluation.figures.places import Places, Units, are_parts, grouped, scored_places
from stages.evaluation.figures.token_scores import TokenScores
from stages.lineage.corpus import tokenizer_of
from stages.metrics import perplexity, shown_word_perplexity
from stages.reporting import Progress, unheard
from stages.text.tokens import open_split


@dataclass(frozen=True)
class Side:
    """One of two reports, with its text cut into the parts that are resampled."""

    scores: TokenScores
    places: Places
    offsets: np.ndarray
    """Offsets of documents or paragraphs, then the end of the last, int64 [P + 1]; P is equal on
    both sides.
    """

    def nll(self) -> np.ndarray:
        """Negative log-likelihoods summed over each part, nats, float64 [P]."""
        parts = (
            np.searchsorted(self.offsets, self.places.read(0, len(self.places)), side="right") - 1
        )
        return np.bincount(parts, self.scores.nll(0, len(self.places)), len(self.offsets) - 1)


def compare_text(
    a: TokenScores, b: TokenScores, settings: ComparisonSettings, progress: Progress = unheard
) -> dict[str, Any]:
    """Compare two reports on the same text; see `stages/comparison/settings.py` for the fields.

    Raises: UsageError if blocks of tokens are asked for; ArtifactError if no length of the
    documents is known.
    """
    if settings.block_tokens is not None:
        raise UsageError(
            "Blocks of tokens do not line up where tokenizers differ: leave --block-tokens out."
        )
    part, sides = _sides(a, b)
    counts = _counts(progress, *sides)
    nll_a, nll_b = (side.nll() for side in sides)
    weights = np.stack(list(counts.values()), axis=1).astype(np.float64)
    has_weight = weights.any(axis=1)
    difference = nll_b - nll_a
    totals = np.repeat(difference[has_weight, None], len(counts), axis=1)
    intervals = settings.bootstrap.intervals(totals, weights[has_weight], progress)
    a_nats = float(nll_a.sum())
    b_nats = float(nll_b.sum())
    per = []
    for (unit, parts), interval in zip(counts.items(), intervals, strict=True):
        count = int(parts.sum())
        change = (b_nats - a_nats) / count
        means = {
            "unit": unit,
            "count": count,
            "nll_a": a_nats / count,
            "nll_b": b_nats / count,
            "difference": change,
        }
        edges = interval and [perplexity(edge, 1) for edge in interval]
        ratios = {"perplexity_ratio": perplexity(change, 1), "perplexity_ratio_interval": edges}
        per.append({**means, "interval": interval and list(interval), **ratios})
    return {
        "paired_on": "text",
        "tokens_a": len(a),
        "tokens_b": len(b),
        "unknown_rate_a": a.unknown_rate,
        "unknown_rate_b": b.unknown_rate,
        "per": _meaningful(per),
        "bootstrap": {
            **asdict(settings.bootstrap),
            **part,
            "units": int(has_weight.sum()),
            "units_won": int((difference[has_weight] < 0).sum()),
        },
    }


def _sides(a: TokenScores, b: TokenScores) -> tuple[dict[str, Any], list[Side]]:
    """Cut both reports into the units that are resampled.

    These are documents, or groups of them, as in a report's own intervals; paragraphs if there is
    only one document.
    """
    both = [
        (scores, scored_places(scores.tokens, scores.split, scores.counted)) for scores in (a, b)
    ]
    places = both[0][1]
    if places.documents_with_tokens() > 1 or a.counted == "last-word":
        offsets = [own.doc_offsets for _, own in both]
        if not are_parts(places, a.tokens.config.get("documents")):
            return {"unit": "document"}, [
                Side(*one, own) for one, own in zip(both, offsets, strict=True)
            ]
        facts = Units(places, None, groups := grouped(offsets[0])).facts(len(groups) - 1)
        return facts, [Side(*one, own[groups]) for one, own in zip(both, offsets, strict=True)]
    start = np.zeros(1, np.int64)
    ends = [np.asarray(own.split.paragraph_ends[:]) for _, own in both]
    sides = [Side(*one, np.concatenate([start, own])) for one, own in zip(both, ends, strict=True)]
    return {"unit": "paragraph"}, sides


def _counts(progress: Progress, a: Side, b: Side) -> dict[str, np.ndarray]:
    """Words and characters of each part, int64 [P] each, if either tokenizer knows them; or last
    words as words.
    """
    if a.scores.counted == "last-word":
        return {"word": _passages(a, b)}
    counts: dict[str, np.ndarray] = {}
    for side in (a, b):
        if len(counts) < len(UNITS):
            counts |= lengths(side.scores.tokens, side.scores.split, side.offsets, progress)
    if not counts:
        raise ArtifactError(
            f"{a.scores.report.reference} and {b.scores.report.reference} are of tokens that tell neither the words "
            f"nor the characters of a document ({a.scores.tokens.reference}, {b.scores.tokens.reference}). Tokenize "
            "with word, char, byte, bpe or a tokenizer that keeps white space."
        )
    return {unit: counts[unit] for unit in UNITS if unit in counts}


def _passages(a: Side, b: Side) -> np.ndarray:
    """Number of last words that count in each document, 0 or 1, int64 [D]."""
    scored = []
    for places in (a.places, b.places):
        assert places.chosen is not None
        scored.append(np.zeros(len(places.doc_offsets) - 1, np.int64))
        scored[-1][places.documents(places.chosen)] = 1
    if not np.array_equal(scored[0], scored[1]):
        raise ArtifactError(
            f"{a.scores.report.reference} and {b.scores.report.reference} score the last words of other documents "
            f"of {a.scores.split}, so that they cannot be compared."
        )
    return scored[0]


def _meaningful(per: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Units with a meaningful perplexity: without words if white space does not separate them."""
    by_unit = {unit["unit"]: unit for unit in per}
    if by_unit.keys() != {"word", "character"}:
        return per
    words = by_unit["word"]
    characters = by_unit["character"]
    bits = [characters[name] / log(2) for name in ("nll_a", "nll_b")]
    shown = [
        shown_word_perplexity(perplexity(words[n], 1), b)
        for n, b in zip(("nll_a", "nll_b"), bits, strict=True)
    ]
    return per if None not in shown else [characters]


UNITS = ("word", "character")


def lengths(
    tokens: Artifact, split: str, offsets: np.ndarray, progress: Progress = unheard
) -> dict[str, np.ndarray]:
    """Numbers of words and characters in the parts of a split, int64 [P] each, as tokenize counts
    them.

    Words are separated by white space, plus one for each line: these are the tokens of a word
    tokenizer. Tokens of other tokenizers are decoded. A length is left out if its sum differs from
    that of the whole split: `<unk>` may hide any text.

    Args:
        offsets: int64 [P + 1], ascending; part i is the tokens [offsets[i], offsets[i+1]).
    """
    counted = tokens.metrics["splits"][split]
    result = {"word": np.diff(offsets)}
    if tokens.metrics["tokenizer"] != "word":
        result = _decoded_lengths(tokens, split, offsets, progress)
    return {unit: parts for unit, parts in result.items() if parts.sum() == counted[f"{unit}s"]}


def _decoded_lengths(
    tokens: Artifact, split: str, offsets: np.ndarray, progress: Progress
) -> dict[str, np.ndarray]:
    from stages.text.tokenizer import words
    from stages.text.words import word_spelling

    tokenizer = tokenizer_of(tokens)
    try:
        spelled = word_spelling(tokenizer)
    except UsageError:
        return {}
    # `<eos>` is decoded as no text: documents end without a character.
    spelled[tokenizer.eos_id] = b""
    ids: Any = np.asarray(open_split(tokens.zarr("tokens.zarr"), split).ids[:])
    parts = np.zeros((len(offsets) - 1, 2), np.int64)
    for number, (start, stop) in enumerate(pairwise(offsets)):
        text = b"".join(spelled[id] for id in ids[start:stop].tolist()).decode("utf-8", "replace")
        # As in tokenize, a last line without a line break counts as a line.
        unended = bool(text) and not text.endswith("\n")
        parts[number] = len(words(text)) + text.count("\n") + unended, len(text)
        progress(int(stop), int(offsets[-1]), "tokens turned into text")
    return dict(zip(UNITS, parts.T, strict=True))
