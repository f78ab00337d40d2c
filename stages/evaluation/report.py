"""What a report shows: rows of figures from the sums that the shards left. Free of torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.evaluation.metrics import Counts, figures, perplexity

PLAIN = "plain"


@dataclass(frozen=True)
class Totals:
    """Sums over the counted tokens of the split; lists are row by row, the plain model first.

    `nll`: nats. `nll_outside`: of the `tokens_outside` tokens that lie in no paragraph of the
    training text; None where that is not known. `nll_by_cutoff`: of each memory row.
    `hits`: tokens whose target is among the best K neighbours, by K. `wrong`: passages whose last
    word is not the likeliest, None if that was not asked for. `seconds`: the model's own included.
    """

    tokens: int
    nll: list[float]
    nll_outside: list[float] | None
    tokens_outside: int
    nll_by_cutoff: list[list[float]]
    hits: dict[str, int]
    wrong: list[set[int]] | None
    seconds: list[float]

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> "Totals":
        """Add up the records of all shards."""
        outside = [r["nll_outside"] for r in records]
        wrong = [r["wrong"] for r in records]
        return cls(
            tokens=sum(r["tokens"] for r in records),
            nll=_columns([r["nll"] for r in records]),
            nll_outside=None if outside[0] is None else _columns(outside),
            tokens_outside=sum(r["tokens_outside"] for r in records),
            nll_by_cutoff=[_columns(row) for row in zip(*(r["nll_by_cutoff"] for r in records), strict=True)],
            hits={k: sum(r["hits"][k] for r in records) for k in records[0]["hits"]},
            wrong=None if wrong[0] is None else [set().union(*row) for row in zip(*wrong, strict=True)],
            seconds=_columns([r["seconds"] for r in records]),
        )


def _columns(table: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip(*table, strict=True)]


def table(
    names: Sequence[str],
    memories: Sequence[Sequence[Mapping[str, Any]]],
    totals: Totals,
    counts: Counts,
    read_tokens: int,
) -> list[dict[str, Any]]:
    """The rows of the report: name, figures of merit, tokens a second, readings of memory.

    Args:
        counts: of what is scored: the split, or the last words of its passages.
        read_tokens: tokens of the split, scored or not.
    """
    columns = zip(names, memories, totals.nll, totals.seconds, strict=True)
    rows = [
        {
            "row": name,
            **figures(nll, counts),
            "tokens_per_second": round(read_tokens / seconds, 1),
            "memories": list(readings),
        }
        for name, readings, nll, seconds in columns
    ]
    if totals.wrong is not None:
        for row, wrong in zip(rows, totals.wrong, strict=True):
            row["accuracy"] = 1 - len(wrong) / counts.words
    return rows


def outside_repeated_paragraphs(names: Sequence[str], totals: Totals) -> dict[str, Any] | None:
    """The rows again, on the tokens in no paragraph that stands word for word in the training text."""
    if totals.nll_outside is None:
        return None
    left = totals.tokens_outside
    return {
        "tokens": left,
        "repeated_tokens": totals.tokens - left,
        "repeated_share": 1 - left / totals.tokens,
        "rows": [
            {"row": name, "perplexity": perplexity(nll, left)}
            for name, nll in zip(names, totals.nll_outside, strict=True)
        ],
    }


def retrieval_accuracy(totals: Totals) -> dict[str, float] | None:
    """Share of tokens whose target is among the values of the best K neighbours, by K."""
    return {k: hits / totals.tokens for k, hits in totals.hits.items()} or None


def curves(rows: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]], totals: Totals) -> list[dict[str, Any]]:
    """Perplexity of reading fewer cells, for every row that reads one memory.

    Args:
        rows: of each memory row its name, what its cut-offs count (`k`, `size`), and its settings at each.
    """
    return [
        {
            "row": name,
            "over": over,
            "points": [
                {**point, "perplexity": perplexity(nll, totals.tokens)} for point, nll in zip(points, sums, strict=True)
            ],
        }
        for (name, over, points), sums in zip(rows, totals.nll_by_cutoff, strict=True)
        if points
    ]


HEADLINE = (
    *("split", "score", "tokens", "nll", "perplexity", "bits_per_character", "bits_per_byte"),
    *("word_perplexity", "method", "memories", "rows", "curves", "retrieval_accuracy"),
    *("outside_repeated_paragraphs", "tokens_per_second"),
)
"""What of a report stands in its manifest."""
