"""Comparison of two reports on the same tokens: sums by group and by unit, and single tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from stages.comparison.settings import SHOWN_DIGITS, ComparisonSettings
from stages.errors import ArtifactError
from stages.evaluation.figures.breakdown import BOUNDS, Frequencies, buckets, find_frequencies
from stages.evaluation.figures.intervals import Bootstrap
from stages.evaluation.figures.places import Places, scored_places, units_of
from stages.evaluation.figures.token_scores import TokenScores
from stages.lineage.corpus import token_text
from stages.metrics import perplexity
from stages.reporting import Progress, unheard
from stages.text.documents import DocumentNames
from stages.text.excerpt import SplitText, half_a_line

FIRST_RANGE = 16
"""Tokens in the first range of positions; every further range is twice as long, so that its end
doubles.
"""


def tally(
    units: np.ndarray,
    groups: np.ndarray,
    nll_a: np.ndarray,
    nll_b: np.ndarray,
    shape: tuple[int, int],
) -> np.ndarray:
    """Sums by unit and group, [5, U, G]: tokens, nats of A and of B, tokens won and lost.

    Args:
        units, groups: the document or block, and the group, of each of n tokens, int64 [n].
        nll_a, nll_b: NLL of both in nats, float64 [n].
        shape: U and G.
    """
    columns = (None, nll_a, nll_b, nll_b < nll_a, nll_b > nll_a)
    cells = units * shape[1] + groups
    return np.array(
        [np.bincount(cells, column, shape[0] * shape[1]).reshape(shape) for column in columns]
    )


def group_figures(
    sums: np.ndarray, bootstrap: Bootstrap, progress: Progress = unheard
) -> list[dict[str, Any] | None]:
    """Figures of each group of a tally, with all intervals from the same draws; None for groups
    without tokens.

    `nll_a`, `nll_b` and their `difference`, B - A, are means in nats a token. `won`, `lost`: tokens
    with a higher, or a lower, probability in B than in A. `interval` of the difference: None if too
    few units have tokens of the group.
    """
    # [5, units, groups]: tokens, nats of A, nats of B, won, lost
    num_tokens = sums[0]
    differences = sums[2] - sums[1]
    has_tokens = num_tokens.any(axis=1)
    intervals = bootstrap.intervals(differences[has_tokens], num_tokens[has_tokens], progress)

    figures: list[dict[str, Any] | None] = []
    totals = sums.sum(axis=1).T.tolist()
    for (tokens, nll_a, nll_b, won, lost), interval in zip(totals, intervals, strict=True):
        if not tokens:
            figures.append(None)
            continue
        mean_a = nll_a / tokens
        mean_b = nll_b / tokens
        figures.append(
            {
                "tokens": int(tokens),
                "nll_a": mean_a,
                "nll_b": mean_b,
                "won": int(won),
                "lost": int(lost),
                "interval": interval and list(interval),
                "difference": mean_b - mean_a,
            }
        )
    return figures


def position_range(positions: np.ndarray) -> np.ndarray:
    """Number of the range that holds each position, int64 [n]: 0 … 15, 16 … 31, 32 … 63 and so on,
    doubling.

    Args:
        positions: number of tokens before each token in its document, int64 [n].
    """
    return np.frexp(positions // FIRST_RANGE)[1].astype(np.int64)


def range_bounds(number: int) -> tuple[int, int]:
    """The positions [start, stop) of a range."""
    return (FIRST_RANGE << number) >> 1 if number else 0, FIRST_RANGE << number


def most_changed(gains: np.ndarray, nll: np.ndarray, count: int) -> np.ndarray:
    """The rows with the largest gains that a table shows as more than 0, int64.

    Gains are equal if a table shows the same. A mixture takes the same share from every token that
    its memory lacks, but for rounding. Of equals the first is the most probable, whose probability
    changes most; then the earlier one.

    Args:
        gains: float64 [n], in nats.
        nll: of the report that gives more probability, float64 [n], in nats.

    >>> gains = np.array([0.2877, 0.003, 0.2876, 1.5, -2.0])
    >>> most_changed(gains, nll=np.array([4.0, 0.1, 0.2, 2.0, 3.0]), count=3).tolist()
    [3, 2, 0]
    """
    shown = np.round(gains, SHOWN_DIGITS)
    rows = np.flatnonzero(shown > 0)
    # The last key of `lexsort` counts first; rows that are equal in all keys keep their order.
    order = np.lexsort((nll[rows], -shown[rows]))
    return rows[order[:count]]


def same_targets(a: TokenScores, b: TokenScores) -> np.ndarray:
    """The scored tokens of both reports, int32 [n]. Raises: ArtifactError if they are not the same."""
    of_a = np.asarray(a.targets[:])
    of_b = np.asarray(b.targets[:])
    differing = np.flatnonzero(of_a != of_b)
    if len(differing):
        raise ArtifactError(
            f"{a.report.reference} and {b.report.reference} score other tokens, from scored token {int(differing[0])} of "
            f"{a.split} on; make both again with memlm evaluate"
        )
    return of_a


def token_rows(
    a: TokenScores, b: TokenScores, rows: np.ndarray, places: Places, around: int | None
) -> Iterator[dict[str, Any]]:
    """Scored tokens as JSON, with the columns of probes (`NAME_a`, `NAME_b`).

    Args:
        rows: numbers of scored tokens, int64 [n], in any order.
        around: number of tokens of context before and after; None: enough to fill a line.
    """
    tokens = rows if places.chosen is None else places.chosen[rows]
    log_p_a = np.asarray(a.log_p.take(rows), np.float64)
    log_p_b = np.asarray(b.log_p.take(rows), np.float64)
    columns: dict[str, Any] = {
        "token": tokens,
        "document": places.documents(tokens),
        "position": places.positions(tokens),
        "log_p_a": log_p_a,
        "log_p_b": log_p_b,
        "difference": log_p_a - log_p_b,
    }
    for side, scores in (("a", a), ("b", b)):
        for name, values in scores.probed.items():
            columns[f"{name}_{side}"] = np.asarray(values.take(rows), np.float64)

    corpus = a.tokens
    names = DocumentNames.read(corpus.path, a.split)
    split = places.split
    text = SplitText(a.split, split.ids, split.doc_offsets, token_text(corpus), names)
    length = half_a_line(corpus.metrics["tokenizer"]) if around is None else around
    for number, excerpt in enumerate(text.excerpts(tokens, length, length)):
        row = {name: values[number].item() for name, values in columns.items()}
        row["name"] = excerpt.name
        row["before"] = excerpt.before
        row["text"] = excerpt.token
        row["after"] = excerpt.after
        yield row


def compare_tokens(
    a: TokenScores, b: TokenScores, settings: ComparisonSettings, progress: Progress = unheard
) -> dict[str, Any]:
    """Compare two reports on the same tokens; see `stages/comparison/settings.py` for the fields.

    Raises: ArtifactError if the scores of the reports are not for the same tokens.
    """
    places = scored_places(a.tokens, a.split, a.counted)
    units = units_of(places, settings.block_tokens, a.tokens.config.get("documents"))
    inputs = {"model": a.report.input("model"), "tokens": a.tokens}
    frequencies = find_frequencies("train", inputs, a.split)
    targets = same_targets(a, b)

    num_tokens = len(places)
    tokens = places.read(0, num_tokens)
    nll_a = a.nll(0, num_tokens)
    nll_b = b.nll(0, num_tokens)

    # Every token is in three groups: all tokens, its range of positions, its bucket of frequency.
    range_of_token = position_range(places.positions(tokens))
    num_ranges = int(range_of_token.max()) + 1
    groupings = [(np.zeros(num_tokens, np.int64), 1), (range_of_token, num_ranges)]
    if frequencies is not None:
        bucket_of_token = frequencies.bucket_of[targets]
        groupings.append((bucket_of_token, len(BOUNDS) + 1))

    unit_of_token = units.of(tokens)
    tallies = []
    for group_of_token, num_groups in groupings:
        shape = (units.count, num_groups)
        tallies.append(tally(unit_of_token, group_of_token, nll_a, nll_b, shape))
    sums = np.concatenate(tallies, axis=2)

    # One bootstrap for all groups: their intervals come from the same draws, and can be compared.
    all_tokens, *parts = group_figures(sums, settings.bootstrap, progress)
    assert all_tokens is not None, "a split without tokens is never evaluated"
    by_position = parts[:num_ranges]
    by_bucket = parts[num_ranges:]

    # The first group holds all tokens.
    has_tokens = sums[0, :, 0] > 0
    difference_of_unit = sums[2, :, 0] - sums[1, :, 0]
    won = most_changed(nll_a - nll_b, nll_b, settings.most)
    lost = most_changed(nll_b - nll_a, nll_a, settings.most)
    edges = all_tokens["interval"]
    return {
        "paired_on": "tokens",
        "unknown_rate": a.unknown_rate,
        **all_tokens,
        "perplexity_ratio": perplexity(all_tokens["difference"], 1),
        "perplexity_ratio_interval": edges and [perplexity(edge, 1) for edge in edges],
        "won_share": all_tokens["won"] / num_tokens,
        "lost_share": all_tokens["lost"] / num_tokens,
        "bootstrap": {
            **asdict(settings.bootstrap),
            **units.facts(int(has_tokens.sum())),
            "units_won": int((difference_of_unit[has_tokens] < 0).sum()),
        },
        "by_frequency": None if frequencies is None else _by_frequency(by_bucket, frequencies),
        "by_position": _by_position(by_position),
        "most_won": list(token_rows(a, b, won, places, settings.around)),
        "most_lost": list(token_rows(a, b, lost, places, settings.around)),
    }


def _by_frequency(
    groups: Sequence[dict[str, Any] | None], frequencies: Frequencies
) -> dict[str, Any]:
    filled = buckets([0 if group is None else group["tokens"] for group in groups])
    rows = [{**bounds, **(groups[number] or {})} for number, bounds in filled]
    return {"counted_in": frequencies.counted_in, "corpus": frequencies.corpus, "buckets": rows}


def _by_position(groups: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    ranges = [
        (*range_bounds(number), group) for number, group in enumerate(groups) if group is not None
    ]
    return [{"from": start, "to": stop - 1, **group} for start, stop, group in ranges]
