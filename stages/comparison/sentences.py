"""Sentences and tables about a comparison, for terminals and pages."""

from collections.abc import Iterator, Mapping, Sequence
from math import exp
from typing import Any

from stages.comparison.settings import SHOWN_DIGITS
from stages.metrics import FEW_NOTE, FEW_TOKENS, FEWEST_UNITS
from stages.numbers import bucket_label, number
from stages.reports.counting import AgainstCounting
from stages.reports.measures import MEASURES
from stages.reports.remarks.table import COMPARISON, remarks_on
from stages.reports.tables import Table, plain_table

Facts = Mapping[str, Any]


def sentences(facts: Facts) -> Iterator[str]:
    """Sentences about a comparison: the reports, the compared text, the difference and its
    interval.

    The first: `A: report/fe45e96d16f2, trime-ext of model/514cc974ad53, perplexity 112.8`.
    """
    for name in ("a", "b"):
        report = facts[name]
        value = ""
        if report["perplexity"] is not None:
            value = f", perplexity {number(report['perplexity'])}"
        row = f"{report['row']} of {report['model']}"
        yield f"{name.upper()}: {report['reference']}, {row}{value}{against(report)}"
    yield from text_lines(facts)
    if "bleu" in facts:
        yield bleu_line(facts["bleu"])


def bleu_line(bleu: Facts) -> str:
    """`BLEU 23.10 -> 25.30 (+2.20 [1.10, 3.30], p 0.0010)`: A, B, and the difference."""
    interval = "" if bleu["interval"] is None else " [{:.2f}, {:.2f}]".format(*bleu["interval"])
    p = f"p {bleu['p_value']:.4f}"
    return f"BLEU {bleu['a']:.2f} -> {bleu['b']:.2f} ({bleu['difference']:+.2f}{interval}, {p})"


def against(report: Facts) -> str:
    """`, no better than counting in what it reads (24.7)`; empty if no trigram was counted."""
    pair = AgainstCounting(**report["against_counting"])
    if pair.counting is None:
        return ""
    control = pair.words(number).replace("counting", "counting in what it reads", 1)
    if pair.loses:
        return f", no better than {control}"
    return f", not surely better than {control}" if pair.ties else f"; {control}"


def text_lines(facts: Facts) -> Iterator[str]:
    """Sentences about everything except the two reports."""
    scored = "last words of passages" if facts["score"] == "last-word" else "all tokens"
    if facts["paired_on"] == "tokens":
        yield from _token_lines(facts, scored)
    else:
        yield (
            f"{facts['split']}, {scored}: one text in two tokenizations, {facts['tokens_a']:,} tokens in A and "
            f"{facts['tokens_b']:,} in B, so by the word (an end of a line is one) and by the character"
        )
        for per in facts["per"]:
            unit = per["unit"]
            yield f"B - A: {_nats(per)} a {unit}; perplexity by the {unit} {ratio(per)}"
    yield from _measure_lines(facts)

    bootstrap = facts["bootstrap"]
    if bootstrap["units"] > 1:
        yield f"B is better in {bootstrap['units_won']:,} of {bootstrap['units']:,} {bootstrap['unit']}s"
    for remark in remarks_on(COMPARISON, facts):
        yield remark.text


def _token_lines(facts: Facts, scored: str) -> Iterator[str]:
    """Sentences about reports that are compared token by token."""
    yield f"{facts['split']}, {scored}: {facts['tokens']:,} tokens, each read by both"
    yield f"B - A: {_nats(facts)} a token; perplexity {ratio(facts)}"
    num_even = facts["tokens"] - facts["won"] - facts["lost"]
    even = f", the same to {num_even:,}" if num_even else ""
    yield (
        f"B gives more probability to {facts['won_share']:.1%} of the tokens, "
        f"less to {facts['lost_share']:.1%}{even}"
    )


def _measure_lines(facts: Facts) -> Iterator[str]:
    """`confident: 12.1% in A, 14.3% in B; higher is better`, of each measure that reports compute."""
    for measure in MEASURES.computed():
        a, b = (facts[side].get(measure.name) for side in ("a", "b"))
        if a is None or b is None:
            continue
        better = f"; {measure.better} is better" if measure.better else ""
        yield f"{measure.title}: {measure.text(a)} in A, {measure.text(b)} in B{better}"


def verdict(comparison: Facts) -> str:
    """`knn-lm (B) is better than plain (A) on test`, if the interval excludes 0; else that neither
    is better.
    """
    facts = comparison if comparison["paired_on"] == "tokens" else comparison["per"][0]
    first = f"{comparison['a']['row']} (A)"
    second = f"{comparison['b']['row']} (B)"
    split = comparison["split"]
    if not facts["interval"]:
        return f"{first} and {second} on {split}: {ratio(facts)}, nobody knows how surely"
    low, high = facts["interval"]
    if low <= 0 <= high:
        return f"{first} and {second} on {split} differ by no more than chance may give"
    word = "better" if high < 0 else "worse"
    return f"{second} is {word} than {first} on {split}"


def baseline_values(facts: Facts) -> dict[str, str]:
    """Values of the remark on a report and its baseline: the ratio of two perplexities, and its
    interval.
    """
    first, row = facts["rows"]
    interval = ""
    if facts["interval"]:
        interval = f" ({100 * facts['bootstrap']['confidence']:.4g}% interval)"
    return {"row": row, "first": first, "ratio": ratio(facts), "interval": interval}


def _nats(facts: Facts) -> str:
    """`-0.1234 nats [-0.1311, -0.1150]`."""
    return f"{facts['difference']:+.4f} nats {interval_text(facts['interval'])}".rstrip()


def ratio(facts: Facts) -> str:
    """`x 0.8981 [0.8584, 0.9447]`."""
    edges = [value for value in facts["perplexity_ratio_interval"] or () if value is not None]
    factor = f"x {_factor(facts['perplexity_ratio'])}"
    return f"{factor} [{', '.join(map(_factor, edges))}]" if len(edges) == 2 else factor


def _factor(value: float | None) -> str:
    if value is None:
        return "more than can be written"
    return f"{value:.4f}" if 0.01 <= value < 100 else f"{value:.4g}"


def interval_text(edges: Sequence[float] | None) -> str:
    """`[-0.1311, -0.1150]`; empty without an interval."""
    return "" if edges is None else f"[{edges[0]:+.4f}, {edges[1]:+.4f}]"


GROUP = ("tokens", "nats A", "nats B", "B - A", "B wins")


def group_tables(facts: Facts) -> Iterator[Table]:
    """Tables of the difference by frequency and by position; or by unit of text, if tokenizers
    differ.
    """
    if facts["paired_on"] != "tokens":
        rows = [
            [per["unit"], f"{per['count']:,}", f"{per['nll_a']:.4f}", f"{per['nll_b']:.4f}"]
            for per in facts["per"]
        ]
        yield plain_table("Nats by unit of text", ("unit", "number", "A", "B"), rows)
        return

    bootstrap = facts["bootstrap"]
    frequency = facts["by_frequency"]
    if frequency is not None:
        buckets = frequency["buckets"]
        rows = []
        for bucket in buckets:
            label = bucket_label(bucket["more_than"], bucket["at_most"])
            rows.append([label, *_group(bucket)])
        title = f"By how often a token stands in train ({frequency['corpus']})"
        yield plain_table(title + _notes(buckets, bootstrap), ("times", *GROUP), rows)

    ranges = facts["by_position"]
    rows = [[position_label(group), *_group(group)] for group in ranges]
    title = f"By position in the document{_notes(ranges, bootstrap)}"
    yield plain_table(title, ("tokens before", *GROUP), rows)


def position_label(group: Facts) -> str:
    """Label of a range of positions: `16-31`."""
    return f"{group['from']:,}-{group['to']:,}"


def top_tokens(facts: Facts) -> Iterator[tuple[str, Sequence[Facts]]]:
    """The tokens on which B wins and loses most, each list with its title."""
    if facts["paired_on"] == "tokens":
        yield "Tokens that B wins most", facts["most_won"]
        yield "Tokens that B loses most", facts["most_lost"]


def token_figures(token: Facts) -> dict[str, str]:
    """Figures of a token, by header: the difference, both probabilities, and the columns of probes."""
    figures = {
        "nats": f"{token['difference']:+.{SHOWN_DIGITS}f}",
        "p(A)": f"{exp(token['log_p_a']):.2g}",
        "p(B)": f"{exp(token['log_p_b']):.2g}",
    }
    # Columns that probes added: `slot_weight_a` is the `slot_weight` of A.
    for key, value in token.items():
        name, _, side = key.rpartition("_")
        if side in ("a", "b") and name != "log_p":
            figures[f"{name} {side.upper()}"] = f"{value:.2f}"
    return figures


def _notes(groups: Sequence[Facts], bootstrap: Facts) -> str:
    """Notes on figures in parentheses and on missing intervals, if there are any."""
    notes = [FEW_NOTE] if any(group["tokens"] < FEW_TOKENS for group in groups) else []
    if any(group["interval"] is None for group in groups):
        notes.append(
            f"no interval: such tokens stand in fewer than {FEWEST_UNITS} {bootstrap['unit']}s"
        )
    return f" ({'; '.join(notes)})" if notes else ""


def _group(facts: Facts) -> list[str]:
    """Number of tokens of a group, and its figures, in parentheses if the tokens are few."""
    num_tokens = facts["tokens"]
    interval = interval_text(facts["interval"])
    figures = [
        f"{facts['nll_a']:.4f}",
        f"{facts['nll_b']:.4f}",
        f"{facts['difference']:+.4f} {interval}".rstrip(),
        f"{facts['won'] / num_tokens:.1%}",
    ]
    if num_tokens < FEW_TOKENS:
        figures = [f"({figure})" for figure in figures]
    return [f"{num_tokens:,}", *figures]
