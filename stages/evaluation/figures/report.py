"""Figures of a report, from the sums of its shards: rows, tuning split, learned weights. Does not
import torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from stages.evaluation.figures.breakdown import Frequencies, buckets
from stages.metrics import Counts, diverged, figures, finite, perplexity
from stages.numbers import rate
from stages.reports.measures import MEASURES, RowSums

if TYPE_CHECKING:
    import numpy as np

    from stages.evaluation.figures.texts import KnownText, Matched
    from stages.retrieval.rows import MemoryRow


@dataclass(frozen=True)
class Totals:
    """Sums over the counted tokens of the split; lists have one entry for each row, the model alone
    first.

    `nll`: nats; infinite if not finite. `parts`: `tokens` and `nll` of parts of the tokens, by the
    names of `Breakdown.parts`, and `unknown`. `nll_by_cutoff`: nats of each memory row, by cut-off.
    `bucket_nll`: nats of each row and bucket of `bucket_tokens` tokens; None if frequencies are not
    known. `matches`: tokens whose target is among the best K neighbours, by K. `wrong`: passages
    whose last word is not the argmax; None if not asked for.
    `seconds`: time of each row, with the model's own. `of_tokens`: sums of each row, by the names of
    measures that have an `of_token`.
    """

    tokens: int
    nll: list[float]
    parts: dict[str, dict[str, Any]]
    nll_by_cutoff: list[list[float]]
    bucket_tokens: list[int] | None
    bucket_nll: list[list[float]] | None
    matches: dict[str, int]
    wrong: list[set[int]] | None
    seconds: list[float]
    of_tokens: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> "Totals":
        """Add up the records of all shards."""
        sums = {}
        for summand in fields(cls):
            if summand.name not in ("wrong", "of_tokens"):
                sums[summand.name] = _sum([record[summand.name] for record in records])

        # passages that are wrong in several shards count once
        wrong = [record["wrong"] for record in records]
        rows = None
        if wrong[0] is not None:
            rows = [set().union(*passages) for passages in zip(*wrong, strict=True)]
        of_tokens = _sum([record.get("of_tokens", {}) for record in records])
        return cls(**sums, wrong=rows, of_tokens=of_tokens)


def _sum(values: Sequence[Any], unknown: float | None = None) -> Any:
    """The sum of numbers, or of lists and tables of numbers, element by element.

    In a list, None means a number that is not finite. Elsewhere it means unknown, and the sum is
    unknown, too.
    """
    if unknown is None and None in values:
        return None
    first = values[0]
    if isinstance(first, list):
        return [_sum(column, math.inf) for column in zip(*values, strict=True)]
    if isinstance(first, Mapping):
        sums = {}
        for name in first:
            sums[name] = _sum([value[name] for value in values])
        return sums
    return sum(unknown if value is None else value for value in values)


def table(
    names: Sequence[str],
    memories: Sequence[Sequence[Mapping[str, Any]]],
    totals: Totals,
    counts: Counts,
    read_tokens: int,
    vocabulary: int,
) -> list[dict[str, Any]]:
    """The rows of the report: name, figures of merit, whether it diverged, tokens per second,
    readings of memory.

    Args:
        counts: counts of the scored text: the split, or the last words of its passages.
        read_tokens: number of tokens of the split, scored or not.
        vocabulary: number of types; a row has diverged if it is worse than a uniform guess among
        them.
    """
    columns = zip(names, memories, totals.nll, totals.seconds, strict=True)
    rows = [
        {
            "row": name,
            **figures(nll, counts),
            "diverged": diverged(perplexity(nll, counts.tokens), vocabulary),
            "tokens_per_second": rate(read_tokens, seconds),
            "memories": list(readings),
        }
        for name, readings, nll, seconds in columns
    ]
    if totals.wrong is not None:
        for row, wrong in zip(rows, totals.wrong, strict=True):
            row["accuracy"] = 1 - len(wrong) / counts.words
    for number, row in enumerate(rows):
        row |= computed_measures(totals, counts, number)
    return rows


def computed_measures(totals: Totals, counts: Counts, row: int) -> dict[str, float | None]:
    """Values of a row, by the names of measures whose record computes them."""
    values = {}
    for measure in MEASURES.computed():
        assert measure.value is not None, "it is computed"
        sums = totals.of_tokens.get(measure.name)
        of_tokens = None if sums is None else finite(sums[row])
        value = measure.value(RowSums(totals.nll[row], counts, of_tokens))
        values[measure.name] = None if value is None else finite(value)
    return values


def outside_repeated_paragraphs(
    names: Sequence[str], totals: Totals, repeated: Sequence[tuple["KnownText", int]] = ()
) -> dict[str, Any] | None:
    """The rows again, without the tokens of paragraphs that a known text repeats word for word.

    Args:
        repeated: the texts of the model and the datastores, each with its number of repeated
        tokens.
    """
    part = totals.parts.get("outside")
    if part is None:
        return None
    return {
        "tokens": part["tokens"],
        "repeated_tokens": totals.tokens - part["tokens"],
        "repeated_share": 1 - part["tokens"] / totals.tokens,
        "texts": [
            {
                "corpus": text.corpus,
                "split": text.split,
                "read_by": list(text.read_by),
                "repeated_share": tokens / totals.tokens,
            }
            for text, tokens in repeated
        ],
        "rows": _perplexities(names, part),
    }


def outside_matches(
    names: Sequence[str], totals: Totals, matched: "Matched | None", counted: "np.ndarray | slice"
) -> dict[str, Any] | None:
    """The rows again, without the tokens in a long match with a known text; and the shares of
    `counted` in matches.
    """
    part = totals.parts.get("new")
    if part is None or matched is None:
        return None
    return {
        "tokens": part["tokens"],
        **matched.figures(counted),
        "rows": _perplexities(names, part),
    }


def _perplexities(names: Sequence[str], part: Mapping[str, Any]) -> list[dict[str, Any]]:
    pairs = zip(names, part["nll"], strict=True)
    return [{"row": name, "perplexity": perplexity(nll, part["tokens"])} for name, nll in pairs]


def without(names: Sequence[str], totals: Totals, part: str) -> dict[str, Any] | None:
    """The rows again without the tokens of a part (`unknown`, `ends`), and the part's share of each
    gain.
    """
    if part not in totals.parts:
        return None
    nll = totals.nll
    left_out = totals.parts[part]["nll"]
    tokens = totals.parts[part]["tokens"]
    return {
        "tokens": tokens,
        "rate": tokens / totals.tokens,
        "rows": [
            {
                "row": name,
                "perplexity_without": perplexity(nll[row] - left_out[row], totals.tokens - tokens),
                "share_of_gain": _share_of_gain(nll[0] - nll[row], left_out[0] - left_out[row]),
            }
            for row, name in enumerate(names)
        ],
    }


def _share_of_gain(gain: float, of_unknown: float) -> float | None:
    """The share of a gain, in nats, that comes from some tokens; above 1 if the others lose; None
    without a gain.
    """
    return finite(of_unknown / gain) if gain > 0 else None


def frequency_buckets(
    names: Sequence[str], totals: Totals, frequencies: Frequencies | None
) -> dict[str, Any] | None:
    """The rows again, by bucket of the frequency of a token's type in a text; empty buckets are
    left out.
    """
    if frequencies is None or totals.bucket_tokens is None or totals.bucket_nll is None:
        return None
    filled = buckets(totals.bucket_tokens)
    rows = []
    for name, sums in zip(names, totals.bucket_nll, strict=True):
        row: dict[str, Any] = {"row": name, "nll": [], "perplexity": []}
        for number, _ in filled:
            tokens = totals.bucket_tokens[number]
            row["nll"].append(finite(sums[number] / tokens))
            row["perplexity"].append(perplexity(sums[number], tokens))
        rows.append(row)
    return {
        "counted_in": frequencies.counted_in,
        "corpus": frequencies.corpus,
        "buckets": [bucket for _, bucket in filled],
        "rows": rows,
    }


def curves(
    rows: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]], totals: Totals
) -> list[dict[str, Any]]:
    """Perplexity when fewer entries are read, for every row that reads one memory.

    Args:
        rows: for each memory row its name, the unit of its cut-offs (`k`, `size`), and its settings
        at each cut-off.
    """
    figures = []
    for (name, over, points), sums in zip(rows, totals.nll_by_cutoff, strict=True):
        if points:
            curve = []
            for point, nll in zip(points, sums, strict=True):
                curve.append({**point, "perplexity": perplexity(nll, totals.tokens)})
            figures.append({"row": name, "over": over, "points": curve})
    return figures


HEADLINE = (
    *("split", "score", "tokens", "nll", "perplexity", "bits_per_character", "bits_per_byte"),
    *(
        "word_perplexity",
        "unknown_rate",
        "diverged",
        "method",
        "memories",
        "rows",
        "curves",
        "retrieval_accuracy",
    ),
    *(
        "outside_repeated_paragraphs",
        "outside_matches",
        "frequency_buckets",
        "tokens_per_second",
        "translation",
    ),
)
"""Names of the figures in a report's manifest, besides the figures of probes."""


BINS = 20
"""Number of equal bins of [0, 1] in the histogram of weights."""
EDGES = [place / BINS for place in range(BINS + 1)]


def learned_figures(
    row: "MemoryRow",
    learned: Mapping[str, Any],
    shards: Sequence[Mapping[str, Any]],
    totals: Totals,
) -> dict[str, Any]:
    """The entry `learned_weight` of `metrics.json`, of the first row.

    Args:
        learned: the record of the network, with its gains on held-out parts of the tuning split.
        shards: the records of the scored split's shards, whose sums are `totals`.
    """
    weights = [shard["weights"] for shard in shards if "weights" in shard]
    columns = zip(*(part["counts"] for part in weights), strict=True)
    counts = list(map(sum, columns))
    mean = sum(part["sum"] for part in weights) / sum(counts) if counts else None
    return {
        "row": row.name,
        "name": row.sources[-1].reading.weight_name,
        "used": learned["network"] is not None,
        "one_for_all": learned["weight"],
        "fitted_tokens": learned["tokens"],
        "held_out_gains": list(learned["gains"]),
        "mean": mean,
        "histogram": {"edges": EDGES, "tokens": counts} if counts else None,
        "searches": _searches(learned["gate"], shards, totals),
    }


def _searches(
    gains: Mapping[str, Any] | None, shards: Sequence[Mapping[str, Any]], totals: Totals
) -> list[dict[str, Any]] | None:
    """Perplexity by share of tokens searched for: `asked` on the tuning split, `searched` on the
    scored split.

    None if no gain of searching is predicted.
    """
    if gains is None:
        return None
    tokens = totals.tokens
    points = [(0.0, 0, totals.nll[0])]
    for place, share in enumerate(gains["shares"]):
        searched = sum(shard["by_gain"][place][0] for shard in shards)
        nats = sum(shard["by_gain"][place][1] for shard in shards)
        points.append((share, searched, nats))
    if gains["searched"] == 1:
        points.append((1.0, tokens, totals.nll[1]))
    return [
        {"asked": share, "searched": searched / tokens, "perplexity": perplexity(nats, tokens)}
        for share, searched, nats in points
    ]
