"""Groups of reports that differ only in the seed of training: means, deviations, confidence
intervals.
"""

import json
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

from stages.artifacts.artifact import Artifact
from stages.artifacts.manifest import InputRecord
from stages.errors import ArtifactError
from stages.reports.counting import AgainstCounting, against_counting
from stages.reports.fields import counting
from stages.reports.measures import MEASURES


class Spread(NamedTuple):
    """Mean and spread of n numbers; deviation and interval are None if n is 1."""

    n: int
    mean: float
    deviation: float | None
    """Standard deviation of a single run, with n − 1."""
    interval: tuple[float, float] | None
    """Confidence interval of the mean: mean ± t s / √n (Student 1908)."""


def spread(values: Sequence[float], confidence: float) -> Spread:
    """Summarize runs that differ only by chance.

    >>> spread([1.0, 2.0, 3.0], 0.95)
    Spread(n=3, mean=2.0, deviation=1.0, interval=(-0.484138, 4.484138))
    """
    import numpy as np  # imported here, so that commands without groups start faster
    from scipy.special import stdtrit

    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return Spread(n, mean, None, None)
    deviation = float(np.std(values, ddof=1))
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * deviation / sqrt(n)
    return Spread(n, mean, deviation, (round(mean - half, 6), round(mean + half, 6)))


def compare_groups(reports: Sequence[Artifact], confidence: float) -> dict[str, Any]:
    """Mean and spread of every row over the seeds, and differences from the first group.

    Args:
        reports: reports on the same scored text, in any order.
        confidence: confidence of the intervals.
    Returns: JSON; its fields are in docs/how-to/compare.md.
    Raises: ArtifactError if texts differ, or there is nothing to compare.
    """
    _require_same_text(reports)
    groups = seed_groups(reports)
    first = groups[0]
    return {
        "split": first[0].metrics["split"],
        "unknown_rate": first[0].metrics.get("unknown_rate"),
        "confidence": confidence,
        "groups": [_summary(group, first, confidence) for group in groups],
    }


def seed_groups(reports: Sequence[Artifact]) -> list[list[Artifact]]:
    """Groups of reports that differ only in their seeds, in the order of first occurrence; sorted
    by seed within.
    """
    groups: dict[str, list[Artifact]] = {}
    for report in dict.fromkeys(reports):
        groups.setdefault(json.dumps(_without_seed(report), sort_keys=True), []).append(report)
    return [sorted(group, key=seed_of) for group in groups.values()]


def seed_of(report: Artifact) -> int:
    """The seed of a report's model; 0 for an imported model, which has none."""
    return int(report.input("model").config.get("seed", 0))


def _without_seed(artifact: Artifact) -> dict[str, Any]:
    """Identity of an artifact, from its own settings and its ancestors, without the seed of
    training.
    """
    config = {
        name: value
        for name, value in artifact.config.items()
        if (artifact.kind, name) != ("model", "seed")
    }
    inputs = {
        role: _without_seed(above) if (above := _above(artifact, record)) else record.id
        for role, record in artifact.manifest.inputs.items()
    }
    return {
        "kind": artifact.kind,
        "config": config,
        "inputs": inputs,
        "files": artifact.manifest.outside_files,
    }


def _above(artifact: Artifact, record: InputRecord) -> Artifact | None:
    """An input, if it is still in the store; else None."""
    try:
        return artifact.store.open(record.reference)
    except ArtifactError:
        return None


def _require_same_text(reports: Sequence[Artifact]) -> None:
    texts = {report.reference: text_of(report) for report in reports}
    first, *others = texts
    for other in others:
        if texts[other] != texts[first]:
            raise ArtifactError(
                f"{other} scored {_shown(texts[other])}, but {first} {_shown(texts[first])}: means are taken of "
                "reports of one text (two reports of other tokenizers: memlm compare A B)."
            )


def text_of(report: Artifact) -> tuple[str, str, str]:
    """The tokens, the split, and the scored part of the split, of a report."""
    metrics = report.metrics
    return report.input("tokens").reference, metrics["split"], metrics.get("score", "all")


def _shown(text: tuple[str, str, str]) -> str:
    tokens, split, score = text
    return f"{split} of {tokens} ({score})"


def _summary(
    group: Sequence[Artifact], first: Sequence[Artifact], confidence: float
) -> dict[str, Any]:
    return {
        "reports": [report.reference for report in group],
        "seeds": [seed_of(report) for report in group],
        "models": [_model(report) for report in group],
        "method": group[0].metrics["method"],
        "rows": [_row(row["row"], group, first, confidence) for row in group[0].metrics["rows"]],
    }


def _row(
    name: str, group: Sequence[Artifact], first: Sequence[Artifact], confidence: float
) -> dict[str, Any]:
    """Figures of a row over the seeds.

    Its change is against the first row of the first group, between runs with equal seeds; None if
    one has no partner.
    """
    baseline = first[0].metrics["rows"][0]["row"]
    rows = [_reported(report, name) for report in group]
    values = [float(row["perplexity"]) for row in rows]
    by_seed = {
        seed_of(report): float(_reported(report, baseline)["perplexity"]) for report in first
    }
    others = [by_seed.get(seed_of(report)) for report in group]
    shares = [value / other - 1 for value, other in zip(values, others, strict=True) if other]
    # run by run, so that the effect of a seed on both is not counted as a difference
    compared = len(shares) == len(group) and not (group[0] in first and name == baseline)
    pairs = [against_counting(report.metrics, row) for report, row in zip(group, rows, strict=True)]
    return {
        "row": name,
        "perplexity": spread(values, confidence)._asdict(),
        "change": spread(shares, confidence)._asdict() if compared else None,
        "over_documents": _over_documents(name, group, first) if compared else None,
        "counting": _mean([counting(row) for row in rows]),
        "against_counting": _mean_pair(pairs, confidence)._asdict(),
        "bits_per_byte": _mean([row.get("bits_per_byte") for row in rows]),
        "costs": {
            measure.name: _mean([row.get(measure.name) for row in rows])
            for measure in MEASURES.costs()
        },
    }


def _over_documents(
    name: str, group: Sequence[Artifact], first: Sequence[Artifact]
) -> tuple[float, float] | None:
    """The widest interval of a row's change over documents: the lowest and the highest end of all
    seeds. None if a report compares it with another row than the first of all.
    """
    first_rows = {seed_of(report): (_model(report), _first_row(report)) for report in first}
    intervals = []
    for report in group:
        figures = report.json("metrics.json")
        base = figures.get("baseline") or {
            "model": _model(report),
            "row": {"row": _first_row(report)},
        }
        drawn = (figures.get("change_intervals") or {"rows": ()})["rows"]
        by_row = {change["row"]: change["interval"] for change in drawn}
        interval = by_row.get(name)
        is_same = first_rows.get(seed_of(report)) == (base["model"], base["row"]["row"])
        if interval is None or not is_same:
            return None
        intervals.append(interval)
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _model(report: Artifact) -> str:
    return report.input("model").reference


def _first_row(report: Artifact) -> str:
    return str(report.metrics["rows"][0]["row"])


def _mean_pair(pairs: Sequence[AgainstCounting], confidence: float) -> AgainstCounting:
    """Means over the seeds of a row and of its control; its interval is of the mean change, run by
    run.
    """
    perplexity = _mean([pair.perplexity for pair in pairs])
    control = _mean([pair.counting for pair in pairs])
    on_new_text = all(pair.on_new_text for pair in pairs)
    if control is None:
        return AgainstCounting()
    changes = [pair.change for pair in pairs if pair.change is not None]
    interval = spread(changes, confidence).interval if len(changes) == len(pairs) else None
    return AgainstCounting(perplexity, control, interval, on_new_text)


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None unless each run has a value."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if len(numbers) == len(values) else None


def _reported(report: Artifact, name: str) -> Mapping[str, Any]:
    """A row of a report. Raises: ArtifactError if its perplexity is not finite, so that no mean
    exists.
    """
    row: Mapping[str, Any] = next(row for row in report.metrics["rows"] if row["row"] == name)
    if row["perplexity"] is None:
        raise ArtifactError(
            f"Row {name} of {report.reference} has no finite perplexity, so no mean: leave it out."
        )
    return row
