"""A comparison in sentences, for terminals and pages."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.numbers import number
from stages.reports.remarks.table import COMPARISON, COUNTING_SHORT, remarks_on

Facts = Mapping[str, Any]


def sentences(found: Facts) -> Iterator[str]:
    """Sentences about a comparison: the reports, what was compared, the difference and its interval."""
    yield from map(report_line, ("a", "b"), (found["a"], found["b"]))
    yield from text_lines(found)


def report_line(name: str, report: Facts) -> str:
    """`A: report/fe45e96d16f2, trime-ext of model/514cc974ad53, perplexity 112.8`."""
    perplexity = "" if report["perplexity"] is None else f", perplexity {number(report['perplexity'])}"
    return f"{name.upper()}: {report['reference']}, {report['row']} of {report['model']}{perplexity}{against(report)}"


def against(report: Facts) -> str:
    """`, worse than a trigram of what it reads (24.7)`; empty where no trigram was counted."""
    value, counted = report["perplexity"], report.get("counting")
    if counted is None:
        return ""
    if value is not None and value < counted:
        return f", a trigram of what it reads: {number(counted)}"
    return f", {COUNTING_SHORT.format(new='', limit=number(counted))}"


def text_lines(found: Facts) -> Iterator[str]:
    """Everything but the two reports."""
    scored = "last words of passages" if found["score"] == "last-word" else "all tokens"
    if found["paired_on"] == "tokens":
        yield f"{found['split']}, {scored}: {found['tokens']:,} tokens, each read by both"
        yield f"B - A: {_nats(found)} a token; perplexity {ratio(found)}"
        even = found["tokens"] - found["won"] - found["lost"]
        yield (
            f"B gives more probability to {found['won_share']:.1%} of the tokens, less to {found['lost_share']:.1%}"
            f"{f', the same to {even:,}' if even else ''}"
        )
    else:
        yield (
            f"{found['split']}, {scored}: one text in two tokenizations, {found['tokens_a']:,} tokens in A and "
            f"{found['tokens_b']:,} in B, so by the word (an end of a line is one) and by the character"
        )
        for per in found["per"]:
            yield f"B - A: {_nats(per)} a {per['unit']}; perplexity by the {per['unit']} {ratio(per)}"
    drawn = found["bootstrap"]
    if drawn["units"] > 1:
        yield f"B is better in {drawn['units_won']:,} of {drawn['units']:,} {drawn['unit']}s"
    yield from (remark.text for remark in remarks_on(COMPARISON, found))


def verdict(found: Facts) -> str:
    """`knn-lm (B) is better than plain (A) on test`, where the interval does not hold 0; else that nothing is sure."""
    facts = found if found["paired_on"] == "tokens" else found["per"][0]
    first, second = (f"{found[name]['row']} ({name.upper()})" for name in ("a", "b"))
    if not facts["interval"]:
        return f"{first} and {second} on {found['split']}: {ratio(facts)}, nobody knows how surely"
    low, high = facts["interval"]
    if low <= 0 <= high:
        return f"{first} and {second} on {found['split']} differ by no more than chance may give"
    return f"{second} is {'better' if high < 0 else 'worse'} than {first} on {found['split']}"


def baseline_values(found: Facts) -> dict[str, str]:
    """Words about a report and its baseline: the ratio of two perplexities, and its interval."""
    (first, row), drawn = found["rows"], found["bootstrap"]
    interval = f" ({100 * drawn['confidence']:.4g}% interval)" if found["interval"] else ""
    return {"row": row, "first": first, "ratio": ratio(found), "interval": interval}


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
    """`[-0.1311, -0.1150]`; empty where there is none."""
    return "" if edges is None else f"[{edges[0]:+.4f}, {edges[1]:+.4f}]"
