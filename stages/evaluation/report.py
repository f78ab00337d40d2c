"""What a report shows: rows of figures from the sums that the shards left. Free of torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.evaluation.metrics import Counts, figures, perplexity

PLAIN = "plain"


@dataclass(frozen=True)
class Totals:
    """Sums over the scored split; lists are row by row, the plain model first.

    `nll`: nats. `nll_outside`: of the `tokens_outside` tokens that lie in no paragraph of the
    training text; None where that is not known. `nll_by_cutoff`: of the first memory row.
    `hits`: tokens whose target is among the best K neighbours, by K. `seconds`: of each row,
    the model's own time included.
    """

    nll: list[float]
    nll_outside: list[float] | None
    tokens_outside: int
    nll_by_cutoff: list[float]
    hits: dict[str, int]
    seconds: list[float]

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> "Totals":
        """Add up the records of all shards."""
        outside = [r["nll_outside"] for r in records]
        return cls(
            nll=_columns([r["nll"] for r in records]),
            nll_outside=None if outside[0] is None else _columns(outside),
            tokens_outside=sum(r["tokens_outside"] for r in records),
            nll_by_cutoff=_columns([r["nll_by_cutoff"] for r in records]),
            hits={k: sum(r["hits"][k] for r in records) for k in records[0]["hits"]},
            seconds=_columns([r["seconds"] for r in records]),
        )


def _columns(table: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip(*table, strict=True)]


def table(
    names: Sequence[str],
    memories: Sequence[Sequence[Mapping[str, Any]]],
    totals: Totals,
    counts: Counts,
) -> list[dict[str, Any]]:
    """The rows of the report: name, figures of merit, tokens a second, readings of memory."""
    columns = zip(names, memories, totals.nll, totals.seconds, strict=True)
    return [
        {
            "row": name,
            **figures(nll, counts),
            "tokens_per_second": round(counts.tokens / seconds, 1),
            "memories": list(readings),
        }
        for name, readings, nll, seconds in columns
    ]


def outside_repeated_paragraphs(names: Sequence[str], totals: Totals, counts: Counts) -> dict[str, Any] | None:
    """The rows again, on the tokens in no paragraph that stands word for word in the training text."""
    if totals.nll_outside is None:
        return None
    left = totals.tokens_outside
    return {
        "tokens": left,
        "repeated_tokens": counts.tokens - left,
        "repeated_share": 1 - left / counts.tokens,
        "rows": [
            {"row": name, "perplexity": perplexity(nll, left)}
            for name, nll in zip(names, totals.nll_outside, strict=True)
        ],
    }


def retrieval_accuracy(totals: Totals, counts: Counts) -> dict[str, float] | None:
    """Share of tokens whose target is among the values of the best K neighbours, by K."""
    return {k: hits / counts.tokens for k, hits in totals.hits.items()} or None


def perplexity_by_k(points: Sequence[Mapping[str, Any]], totals: Totals, counts: Counts) -> list[dict[str, Any]]:
    """Perplexity of reading the best k neighbours only, each k with its own settings."""
    return [
        {**point, "perplexity": perplexity(nll, counts.tokens)}
        for point, nll in zip(points, totals.nll_by_cutoff, strict=True)
    ]


HEADLINE = (
    *("split", "tokens", "nll", "perplexity", "bits_per_character", "bits_per_byte"),
    *("word_perplexity", "method", "memories", "rows", "perplexity_by_k", "retrieval_accuracy"),
    *("outside_repeated_paragraphs", "tokens_per_second"),
)
"""What of a report stands in its manifest."""
