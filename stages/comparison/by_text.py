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
    scores = (a, b)
    places = [scored_places(side.tokens, side.split, side.counted) for side in scores]
    first = places[0]
    if first.documents_with_tokens() > 1 or a.counted == "last-word":
        facts: dict[str, Any] = {"unit": "document"}
        offsets = [side_places.doc_offsets for side_places in places]
        if are_parts(first, a.tokens.config.get("documents")):
            # groups begin at the same documents in both
            group_starts = grouped(offsets[0])
            facts = Units(first, None, group_starts).facts(len(group_starts) - 1)
            offsets = [doc_offsets[group_starts] for doc_offsets in offsets]
    else:
        facts = {"unit": "paragraph"}
        start = np.zeros(1, np.int64)
        offsets = []
        for side_places in places:
            ends = np.asarray(side_places.split.paragraph_ends[:])
            offsets.append(np.concatenate([start, ends]))
    return facts, [Side(*side) for side in zip(scores, places, offsets, strict=True)]


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
        is_scored = np.zeros(len(places.doc_offsets) - 1, np.int64)
        is_scored[places.documents(places.chosen)] = 1
        scored.append(is_scored)

    of_a, of_b = scored
    if not np.array_equal(of_a, of_b):
        raise ArtifactError(
            f"{a.scores.report.reference} and {b.scores.report.reference} score the last words of other documents "
            f"of {a.scores.split}, so that they cannot be compared."
        )
    return of_a


def _meaningful(per: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Units with a meaningful perplexity: without words if white space does not separate them."""
    by_unit = {unit["unit"]: unit for unit in per}
    if by_unit.keys() != {"word", "character"}:
        return per
    words = by_unit["word"]
    characters = by_unit["character"]
    for name in ("nll_a", "nll_b"):
        bits_per_character = characters[name] / log(2)
        word_perplexity = perplexity(words[name], 1)
        if shown_word_perplexity(word_perplexity, bits_per_character) is None:
            return [characters]
    return per


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
    if tokens.metrics["tokenizer"] == "word":
        parts_by_unit = {"word": np.diff(offsets)}
    else:
        parts_by_unit = _decoded_lengths(tokens, split, offsets, progress)

    totals = tokens.metrics["splits"][split]
    return {
        unit: parts for unit, parts in parts_by_unit.items() if parts.sum() == totals[f"{unit}s"]
    }


def _decoded_lengths(
    tokens: Artifact, split: str, offsets: np.ndarray, progress: Progress
) -> dict[str, np.ndarray]:
    """See `lengths`; empty if the tokenizer does not tell the text of its tokens."""
    from stages.text.tokenizer import words
    from stages.text.words import word_spelling

    tokenizer = tokenizer_of(tokens)
    try:
        spelling = word_spelling(tokenizer)
    except UsageError:
        return {}
    # `<eos>` is decoded as no text: documents end without a character.
    spelling[tokenizer.eos_id] = b""

    ids: Any = np.asarray(open_split(tokens.zarr("tokens.zarr"), split).ids[:])
    num_parts = len(offsets) - 1
    num_tokens = int(offsets[-1])
    num_words = np.zeros(num_parts, np.int64)
    num_characters = np.zeros(num_parts, np.int64)
    for number, (start, stop) in enumerate(pairwise(offsets)):
        pieces = [spelling[id] for id in ids[start:stop].tolist()]
        text = b"".join(pieces).decode("utf-8", "replace")
        num_lines = text.count("\n")
        # As in tokenize, a last line without a line break counts as a line.
        if text and not text.endswith("\n"):
            num_lines += 1
        num_words[number] = len(words(text)) + num_lines
        num_characters[number] = len(text)
        progress(int(stop), num_tokens, "tokens turned into text")
    return {"word": num_words, "character": num_characters}
