"""Comparison of two reports on the same tokens: sums by group and by unit, and single tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from stages.comparison.settings import ComparisonSettings
from stages.errors import ArtifactError
from stages.evaluation.figures.breakdown import BOUNDS, Frequencies, buckets, find_frequencies
from stages.evaluation.figures.intervals import Bootstrap
from stages.evaluation.figures.places import Places, Units, scored_places, units_of
from stages.evaluation.figures.token_scores import TokenScores
from stages.lineage.corpus import token_text
from stages.metrics import perplexity
from stages.reporting import Progress, unheard
from stages.text.documents import DocumentNames
from stages.text.excerpt import Excerpt, SplitText, half_a_line

FIRST_RANGE = 16
"""Tokens in the first range of positions; every further range is twice as long, so that its end doubles."""


class PairedTokens(NamedTuple):
    """n scored tokens, in the order of the split; NLL of both in nats, float64 [n]."""

    units: np.ndarray
    """int64 [n]: document or block of each token."""
    nll_a: np.ndarray
    nll_b: np.ndarray


@dataclass(frozen=True)
class Group:
    """Figures of a group of tokens; means are in nats per token."""

    tokens: int
    nll_a: float
    nll_b: float
    won: int
    """Number of tokens with a higher probability in B than in A."""
    lost: int
    interval: tuple[float, float] | None
    """Confidence interval of the difference of the two means; None if too few units have tokens of the group."""

    @property
    def difference(self) -> float:
        """Mean NLL of B minus mean NLL of A."""
        return self.nll_b - self.nll_a


@dataclass(frozen=True)
class Tally:
    """Sums by unit and group, [5, U, G]: tokens, nats of A and of B, tokens won and lost."""

    sums: np.ndarray

    @classmethod
    def of(cls, pairs: PairedTokens, units: int, groups: np.ndarray, count: int) -> "Tally":
        """Sum over the tokens of U units; `groups`, int64 [n], has the group of each token, below `count`."""
        cells, (_, a, b) = pairs.units * count + groups, pairs
        columns = (None, a, b, b < a, b > a)
        return cls(np.array([np.bincount(cells, one, units * count).reshape(units, count) for one in columns]))

    @property
    def totals(self) -> np.ndarray:
        """Sums of differences over the tokens of each unit and group, nats, [U, G]."""
        differences: np.ndarray = self.sums[2] - self.sums[1]
        return differences

    def groups(self, bootstrap: Bootstrap, progress: Progress = unheard) -> list[Group | None]:
        """Figures of each group, with all intervals from the same draws; None for groups without tokens."""
        weights = self.sums[0]
        held = weights.any(axis=1)
        intervals = bootstrap.intervals(self.totals[held], weights[held], progress)
        sums = self.sums.sum(axis=1).T
        return [_group(row, interval) if row[0] else None for row, interval in zip(sums, intervals, strict=True)]


def _group(sums: np.ndarray, interval: tuple[float, float] | None) -> Group:
    tokens, nll_a, nll_b, won, lost = sums.tolist()
    return Group(int(tokens), nll_a / tokens, nll_b / tokens, int(won), int(lost), interval)


def position_range(positions: np.ndarray) -> np.ndarray:
    """Number of the range that holds each position, int64 [n]: 0 … 15, 16 … 31, 32 … 63 and so on, doubling.

    Args:
        positions: number of tokens before each token in its document, int64 [n].
    """
    return np.frexp(positions // FIRST_RANGE)[1].astype(np.int64)


def range_bounds(number: int) -> tuple[int, int]:
    """The positions [start, stop) of a range."""
    return (FIRST_RANGE << number) >> 1 if number else 0, FIRST_RANGE << number


def largest(values: np.ndarray, most: int) -> np.ndarray:
    """The rows with the largest values above 0, int64; earlier rows win ties.

    >>> largest(np.array([0.5, -1.0, 2.0, 0.5]), most=2).tolist()
    [2, 0]
    """
    above = np.flatnonzero(values > 0)
    return above[np.argsort(-values[above], kind="stable")[:most]]


def same_targets(a: TokenScores, b: TokenScores) -> np.ndarray:
    """The scored tokens of both reports, int32 [n]. Raises: ArtifactError if they are not the same."""
    of_a, of_b = (np.asarray(scores.targets[:]) for scores in (a, b))
    other = np.flatnonzero(of_a != of_b)
    if len(other):
        raise ArtifactError(
            f"{a.report.reference} and {b.report.reference} score other tokens, from scored token {int(other[0])} of "
            f"{a.split} on; make both again: memlm evaluate … --save-token-scores"
        )
    return of_a


BUCKETS = len(BOUNDS) + 1


def token_rows(
    a: TokenScores, b: TokenScores, rows: np.ndarray, places: Places, around: int | None
) -> Iterator[dict[str, Any]]:
    """Scored tokens as JSON, with the columns of probes (`NAME_a`, `NAME_b`).

    Args:
        rows: numbers of scored tokens, int64 [n], in any order.
        around: number of tokens of context before and after; None: enough to fill a line.
    """
    at = rows if places.chosen is None else places.chosen[rows]
    log_p_a, log_p_b = (np.asarray(scores.log_p.take(rows), np.float64) for scores in (a, b))
    columns: dict[str, Any] = {
        "token": at,
        "document": places.documents(at),
        "position": places.positions(at),
        "log_p_a": log_p_a,
        "log_p_b": log_p_b,
        "difference": log_p_a - log_p_b,
    }
    for side, scores in (("a", a), ("b", b)):
        for name, values in scores.probed.items():
            columns[f"{name}_{side}"] = np.asarray(values.take(rows), np.float64)
    for number, excerpt in enumerate(_excerpts(a, places, at, around)):
        texts = {"name": excerpt.name, "before": excerpt.before, "text": excerpt.token, "after": excerpt.after}
        yield {**{name: values[number].item() for name, values in columns.items()}, **texts}


def _excerpts(scores: TokenScores, places: Places, at: np.ndarray, around: int | None) -> list[Excerpt]:
    tokens, split = scores.tokens, places.split
    names = DocumentNames.read(tokens.path, scores.split)
    text = SplitText(scores.split, split.ids, split.doc_offsets, token_text(tokens), names)
    length = half_a_line(tokens.metrics["tokenizer"]) if around is None else around
    return text.excerpts(at, length, length)


def compare_tokens(
    a: TokenScores, b: TokenScores, settings: ComparisonSettings, progress: Progress = unheard
) -> dict[str, Any]:
    """Compare two reports on the same tokens; see `stages/comparison/settings.py` for the fields.

    Raises: ArtifactError if the scores of the reports are not for the same tokens.
    """
    places = scored_places(a.tokens, a.split, a.counted)
    units = units_of(places, settings.block_tokens, a.tokens.config.get("documents"))
    frequencies = find_frequencies("train", {"model": a.report.input("model"), "tokens": a.tokens}, a.split)
    targets, at, n = same_targets(a, b), places.read(0, len(places)), len(places)
    pairs = PairedTokens(units.of(at), a.nll(0, n), b.nll(0, n))
    # Every token is in three groups: all tokens, its bucket of frequency, its range of positions.
    buckets_of = np.zeros(n, np.int64) if frequencies is None else frequencies.bucket_of[targets]
    ranges_of, bootstrap = position_range(places.positions(at)), settings.bootstrap
    grouped = (np.zeros(n, np.int64), 1), (buckets_of, BUCKETS), (ranges_of, int(ranges_of.max()) + 1)
    tally = Tally(np.concatenate([Tally.of(pairs, units.count, *one).sums for one in grouped], axis=2))
    # One bootstrap for all groups: their intervals come from the same draws, and can be compared.
    groups = tally.groups(bootstrap, progress)
    gained = pairs.nll_a - pairs.nll_b
    return {
        "paired_on": "tokens",
        "unknown_rate": a.unknown_rate,
        **_overall(groups[0]),
        "bootstrap": _bootstrap_facts(tally, units, bootstrap),
        "by_frequency": _by_frequency(groups[1 : 1 + BUCKETS], frequencies),
        "by_position": _by_position(groups[1 + BUCKETS :]),
        "most_won": list(token_rows(a, b, largest(gained, settings.most), places, settings.around)),
        "most_lost": list(token_rows(a, b, largest(-gained, settings.most), places, settings.around)),
    }


def _overall(group: Group | None) -> dict[str, Any]:
    assert group is not None, "a split without tokens is never evaluated"
    return {
        **_facts(group),
        "perplexity_ratio": perplexity(group.difference, 1),
        "perplexity_ratio_interval": group.interval and [perplexity(edge, 1) for edge in group.interval],
        "won_share": group.won / group.tokens,
        "lost_share": group.lost / group.tokens,
    }


def _facts(group: Group) -> dict[str, Any]:
    return {**asdict(group), "interval": group.interval and list(group.interval), "difference": group.difference}


def _bootstrap_facts(tally: Tally, units: Units, bootstrap: Bootstrap) -> dict[str, Any]:
    totals, held = tally.totals[:, 0], tally.sums[0, :, 0] > 0
    return {
        **asdict(bootstrap),
        **units.facts(int(held.sum())),
        "units_won": int((totals[held] < 0).sum()),
    }


def _by_frequency(groups: Sequence[Group | None], frequencies: Frequencies | None) -> dict[str, Any] | None:
    if frequencies is None:
        return None
    held = buckets([0 if group is None else group.tokens for group in groups])
    found = [(bounds, groups[number]) for number, bounds in held]
    return {
        "counted_in": frequencies.counted_in,
        "corpus": frequencies.corpus,
        "buckets": [{**bounds, **_facts(group)} for bounds, group in found if group is not None],
    }


def _by_position(groups: Sequence[Group | None]) -> list[dict[str, Any]]:
    found = [(range_bounds(number), group) for number, group in enumerate(groups)]
    return [{"from": start, "to": stop - 1, **_facts(group)} for (start, stop), group in found if group is not None]
