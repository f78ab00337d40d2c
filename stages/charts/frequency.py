"""Change of loss by a token's frequency in the training text: it shows where a memory helps."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.charts.data import Bars, Chart, Series
from stages.charts.reported import in_charts
from stages.metrics import FEW_TOKENS
from stages.numbers import bucket_label


def frequency_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """Make `loss-by-frequency`: the change of each row of a report against the first row.

    Changes are in nats. As shares of perplexity, the rarest words' reach hundreds of percent and hide all others.
    """
    frequency = metrics.get("frequency_buckets")
    if not frequency:
        return []
    return [_chart(f"loss-by-frequency{suffix}", metrics, part) for suffix, part in in_charts(frequency["rows"][1:])]


def bucket_labels(frequency: Mapping[str, Any]) -> list[str]:
    """The buckets of a report, in words."""
    return [bucket_label(bucket["more_than"], bucket["at_most"]) for bucket in frequency["buckets"]]


def counted_in(metrics: Mapping[str, Any]) -> str:
    """Name of the text in which tokens were counted."""
    return "the training text" if metrics["frequency_buckets"]["counted_in"] == "train" else metrics["split"]


def _chart(name: str, metrics: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Chart:
    frequency = metrics["frequency_buckets"]
    first, text = frequency["rows"][0], counted_in(metrics)
    return Chart(
        name,
        f"Change of loss by frequency, {metrics['split']}",
        f"Nats a token against {first['row']}, by how often the token occurs in {text}. Below zero the memory helps."
        f"{few_note(bucket_labels(frequency), [bucket['tokens'] for bucket in frequency['buckets']])}",
        Bars(
            bucket_labels(frequency),
            [Series(row["row"], _sure(frequency, _changes(row["nll"], first["nll"]))) for row in rows],
            f"times in {text}",
            "change of loss, nats",
        ),
    )


def few_note(labels: Sequence[str], tokens: Sequence[int]) -> str:
    """Note on the groups that have too few tokens for a bar; empty where there are none."""
    few = [
        f"{label} ({count:,} token{'s'[: count != 1]})"
        for label, count in zip(labels, tokens, strict=True)
        if count < FEW_TOKENS
    ]
    return f" Left out: {', '.join(few)}. Results of fewer than {FEW_TOKENS} tokens are mostly luck." if few else ""


def _sure(frequency: Mapping[str, Any], values: Sequence[float | None]) -> list[float | None]:
    """The values of buckets with enough tokens; None for the others."""
    buckets = zip(frequency["buckets"], values, strict=True)
    return [value if bucket["tokens"] >= FEW_TOKENS else None for bucket, value in buckets]


def _changes(values: Sequence[float | None], firsts: Sequence[float | None]) -> list[float | None]:
    return [
        None if value is None or first is None else value - first for value, first in zip(values, firsts, strict=True)
    ]
