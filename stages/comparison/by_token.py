"""Two reports of the same tokens, compared token by token; and single tokens as a comparison tells them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from stages.comparison.settings import ComparisonSettings
from stages.comparison.tally import Group, PairedTokens, Tally, largest, position_range, range_bounds, same_targets
from stages.evaluation.figures.breakdown import BOUNDS, Frequencies, buckets, find_frequencies
from stages.evaluation.figures.intervals import Bootstrap
from stages.evaluation.figures.places import Places, Units, scored_places, units_of
from stages.evaluation.figures.token_scores import TokenScores
from stages.lineage.corpus import token_text
from stages.metrics import perplexity
from stages.reporting import Progress, unheard
from stages.text.excerpt import Excerpt, SplitText, half_a_line
from stages.text.names import DocumentNames

BUCKETS = len(BOUNDS) + 1


def token_rows(
    a: TokenScores, b: TokenScores, rows: np.ndarray, places: Places, around: int | None
) -> Iterator[dict[str, Any]]:
    """Scored tokens as JSON, with what probes say of them (`NAME_a`, `NAME_b`).

    Args:
        rows: numbers of scored tokens, int64 [n], in any order.
        around: tokens of context before and after; None: as many as fill a line.
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
    """Compare two reports on the same tokens; see docs/how-to/compare.md for the fields.

    Raises: ArtifactError if the reports turn out not to hold scores of the same tokens.
    """
    places = scored_places(a.tokens, a.split, a.counted)
    units = units_of(places, settings.block_tokens, a.tokens.config.get("documents"))
    frequencies = find_frequencies("train", {"model": a.report.input("model"), "tokens": a.tokens}, a.split)
    targets, at, n = same_targets(a, b), places.read(0, len(places)), len(places)
    pairs = PairedTokens(units.of(at), a.nll(0, n), b.nll(0, n))
    # Every token is in three groups: all, its bucket of frequency, its range of positions.
    buckets_of = np.zeros(n, np.int64) if frequencies is None else frequencies.bucket_of[targets]
    ranges_of, bootstrap = position_range(places.positions(at)), settings.bootstrap
    grouped = (np.zeros(n, np.int64), 1), (buckets_of, BUCKETS), (ranges_of, int(ranges_of.max()) + 1)
    tally = Tally(np.concatenate([Tally.of(pairs, units.count, *one).sums for one in grouped], axis=2))
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
