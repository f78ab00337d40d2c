"""Two reports of the same tokens, compared token by token."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from stages.comparison.bootstrap import Bootstrap
from stages.comparison.context import Contexts
from stages.comparison.extremes import Extremes
from stages.comparison.places import Units, scored_places, units_of
from stages.comparison.scores import TokenScores
from stages.comparison.settings import ComparisonSettings
from stages.comparison.tally import Group, PairedTokens, Tally, position_range, range_bounds
from stages.errors import ArtifactError
from stages.evaluation.frequency import BOUNDS, Frequencies, buckets, find_frequencies
from stages.evaluation.metrics import perplexity

TOKENS_AT_ONCE = 1 << 19
BUCKETS = len(BOUNDS) + 1


def compare_tokens(a: TokenScores, b: TokenScores, settings: ComparisonSettings) -> dict[str, Any]:
    """What a comparison on the same tokens shows; see docs/compare.md for its fields.

    Raises: ArtifactError if the reports turn out not to hold scores of the same tokens.
    """
    places = scored_places(a.tokens, a.split, a.counted)
    units = units_of(places, settings.block_tokens)
    frequencies = find_frequencies("train", {"model": a.report.input("model"), "tokens": a.tokens}, a.split)
    ranges = int(position_range(np.diff(places.doc_offsets)).max()) + 1
    tally = Tally(units.count, 1 + BUCKETS + ranges)
    won, lost = Extremes(settings.most), Extremes(settings.most)
    for start, stop in _blocks(len(places)):
        at = places.read(start, stop)
        pairs = PairedTokens(units.of(at), a.nll(start, stop), b.nll(start, stop))
        targets = _targets(a, b, start, stop)
        tally.add(pairs, np.zeros(len(at), np.int64))
        if frequencies is not None:
            tally.add(pairs, 1 + frequencies.bucket_of[targets])
        tally.add(pairs, 1 + BUCKETS + position_range(at - places.doc_offsets[places.documents(at)]))
        won.add(start, -pairs.difference)
        lost.add(start, pairs.difference)
    bootstrap = Bootstrap(settings.samples, settings.confidence, settings.seed)
    groups, contexts = tally.groups(bootstrap), Contexts(a.tokens, places, settings.around)
    return {
        "paired_on": "tokens",
        **_overall(groups[0]),
        "bootstrap": _bootstrap_facts(tally, units, bootstrap),
        "by_frequency": _by_frequency(groups[1 : 1 + BUCKETS], frequencies),
        "by_position": _by_position(groups[1 + BUCKETS :]),
        "most_won": list(told_tokens(a, b, won.rows, contexts)),
        "most_lost": list(told_tokens(a, b, lost.rows, contexts)),
    }


def _blocks(rows: int) -> Iterator[tuple[int, int]]:
    for start in range(0, rows, TOKENS_AT_ONCE):
        yield start, min(start + TOKENS_AT_ONCE, rows)


def _targets(a: TokenScores, b: TokenScores, start: int, stop: int) -> np.ndarray:
    of_a, of_b = (np.asarray(scores.targets[start:stop]) for scores in (a, b))
    other = np.flatnonzero(of_a != of_b)
    if len(other):
        raise ArtifactError(
            f"{a.report.reference} and {b.report.reference} score other tokens, from scored token "
            f"{start + int(other[0])} of {a.split} on; make both again: memlm evaluate … --save-token-scores"
        )
    return of_a


def _overall(group: Group | None) -> dict[str, Any]:
    assert group is not None, "a split without tokens is never evaluated"
    facts = group_facts(group)
    interval = group.interval
    return {
        **facts,
        "perplexity_ratio": perplexity(group.difference, 1),
        "perplexity_ratio_interval": None if interval is None else [perplexity(edge, 1) for edge in interval],
        "won_share": group.won / group.tokens,
        "lost_share": group.lost / group.tokens,
    }


def group_facts(group: Group) -> dict[str, Any]:
    """A group of tokens as JSON."""
    return {**asdict(group), "interval": group.interval and list(group.interval), "difference": group.difference}


def _bootstrap_facts(tally: Tally, units: Units, bootstrap: Bootstrap) -> dict[str, Any]:
    totals, held = tally.totals[:, 0], tally.weights[:, 0] > 0
    return {
        **asdict(bootstrap),
        "unit": "document" if units.block_tokens is None else "block",
        "block_tokens": units.block_tokens,
        "units": int(held.sum()),
        "units_won": int((totals[held] < 0).sum()),
    }


def _by_frequency(groups: list[Group | None], frequencies: Frequencies | None) -> dict[str, Any] | None:
    if frequencies is None:
        return None
    held = buckets([0 if group is None else group.tokens for group in groups])
    found = [(bounds, groups[number]) for number, bounds in held]
    return {
        "counted_in": frequencies.counted_in,
        "corpus": frequencies.corpus,
        "buckets": [{**bounds, **group_facts(group)} for bounds, group in found if group is not None],
    }


def _by_position(groups: list[Group | None]) -> list[dict[str, Any]]:
    found = [(range_bounds(number), group) for number, group in enumerate(groups)]
    return [
        {"from": start, "to": stop - 1, **group_facts(group)} for (start, stop), group in found if group is not None
    ]


def told_tokens(a: TokenScores, b: TokenScores, rows: np.ndarray, contexts: Contexts) -> Iterator[dict[str, Any]]:
    """Scored tokens as JSON: where they stand, both log-probabilities, the text around them, and gates if any.

    Args:
        rows: numbers of scored tokens, int64 [n], in any order.
    """
    places = contexts.places
    at = places.chosen[rows] if places.chosen is not None else rows
    documents = places.documents(at)
    columns: dict[str, Any] = {
        "token": at,
        "document": documents,
        "position": at - places.doc_offsets[documents],
        "log_p_a": _picked(a.log_p, rows),
        "log_p_b": _picked(b.log_p, rows),
    }
    columns["difference"] = columns["log_p_a"] - columns["log_p_b"]
    columns |= {f"gate_{name}": _picked(s.gate, rows) for name, s in (("a", a), ("b", b)) if s.gate is not None}
    for number, context in enumerate(contexts.read(at)):
        yield {**{name: values[number].item() for name, values in columns.items()}, **context._asdict()}


def _picked(array: Any, rows: np.ndarray) -> np.ndarray:
    """Some rows of a stored array, float64 [n]."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return np.asarray(array[int(rows[0]) : int(rows[-1]) + 1], np.float64)
    return np.array([array[int(row)] for row in rows], np.float64)
