"""Two reports of the same tokens, compared token by token."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from stages.comparison.settings import ComparisonSettings
from stages.comparison.tally import Group, Tally, range_bounds
from stages.comparison.token_rows import token_rows
from stages.comparison.token_sums import read_sums
from stages.evaluation.figures.frequency import Frequencies, buckets, find_frequencies
from stages.evaluation.figures.intervals import Bootstrap
from stages.evaluation.figures.places import Units, scored_places, units_of
from stages.evaluation.figures.token_scores import TokenScores
from stages.metrics import perplexity
from stages.reporting import Progress, unheard


def compare_tokens(
    a: TokenScores, b: TokenScores, settings: ComparisonSettings, progress: Progress = unheard
) -> dict[str, Any]:
    """Compare two reports on the same tokens; see docs/how-to/compare.md for the fields.

    Raises: ArtifactError if the reports turn out not to hold scores of the same tokens.
    """
    places = scored_places(a.tokens, a.split, a.counted)
    units = units_of(places, settings.block_tokens, a.tokens.config.get("documents"))
    frequencies = find_frequencies("train", {"model": a.report.input("model"), "tokens": a.tokens}, a.split)
    sums = read_sums(a, b, units, frequencies, settings.most, progress)
    bootstrap, around = settings.bootstrap, settings.around
    groups = sums.groups(bootstrap, progress)
    return {
        "paired_on": "tokens",
        "unknown_rate": a.unknown_rate,
        **_overall(groups.all),
        "bootstrap": _bootstrap_facts(sums.tally, units, bootstrap),
        "by_frequency": _by_frequency(groups.buckets, frequencies),
        "by_position": _by_position(groups.ranges),
        "most_won": list(token_rows(a, b, sums.won.rows, places, around)),
        "most_lost": list(token_rows(a, b, sums.lost.rows, places, around)),
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
    totals, held = tally.totals[:, 0], tally.weights[:, 0] > 0
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
