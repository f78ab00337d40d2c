"""A comparison of two reports, as text for people."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from math import exp
from typing import Any

from memlm_cli.console import printable
from memlm_cli.tables import table
from stages.numbers import bucket_label, number

Facts = Mapping[str, Any]
Shown = tuple[str, Sequence[str], list[list[str]]]
"""Title, headers and cells of a table."""

FEW_UNITS = 10
GROUP = ("tokens", "nats A", "nats B", "B - A", "interval", "B wins")


def comparison_text(found: Facts) -> str:
    """What `stages.comparison.compare.compare` found: sentences, then tables."""
    terminal = sys.stdout.isatty()
    shown = _token_tables(found) if found["paired_on"] == "tokens" else [_units_table(found)]
    return "\n\n".join(["\n".join(_headline(found)), *(table(*one, terminal=terminal) for one in shown if one[2])])


def _headline(found: Facts) -> Iterator[str]:
    for name in ("a", "b"):
        report = found[name]
        perplexity = "" if report["perplexity"] is None else f", perplexity {number(report['perplexity'])}"
        yield f"{name.upper()}: {report['reference']}, {report['row']} of {report['model']}{perplexity}"
    scored = "last words of passages" if found["score"] == "last-word" else "all tokens"
    if found["paired_on"] == "tokens":
        yield f"{found['split']}, {scored}: {found['tokens']:,} tokens, each read by both"
        yield f"B - A: {_nats(found)} a token; perplexity {_ratio(found)}"
        even = found["tokens"] - found["won"] - found["lost"]
        yield (
            f"B gives more probability to {found['won_share']:.1%} of the tokens, less to {found['lost_share']:.1%}"
            f"{f', the same to {even:,}' if even else ''}"
        )
    else:
        yield (
            f"{found['split']}, {scored}: one text in two tokenizations, {found['tokens_a']:,} tokens in A and "
            f"{found['tokens_b']:,} in B, so by the word and by the character"
        )
        for per in found["per"]:
            yield f"B - A: {_nats(per)} a {per['unit']}; perplexity by the {per['unit']} {_ratio(per)}"
        yield from _unknown(found)
    yield _resampled(found["bootstrap"])


def baseline_line(found: Facts) -> str:
    """What `stages.comparison.baseline.against_baseline` found: the ratio of two perplexities, and its interval."""
    (first, row), drawn = found["rows"], found["bootstrap"]
    interval = f" ({100 * drawn['confidence']:.4g}% interval, as of memlm compare)" if found["interval"] else ""
    return f"{row} against {first} of the baseline: perplexity {_ratio(found)}{interval}"


def _nats(facts: Facts) -> str:
    """`-0.1234 nats [-0.1311, -0.1150]`."""
    return f"{facts['difference']:+.4f} nats {_interval(facts['interval'])}".rstrip()


def _ratio(facts: Facts) -> str:
    """`x 0.8981 [0.8584, 0.9447]`."""
    edges = [value for value in facts["perplexity_ratio_interval"] or () if value is not None]
    factor = f"x {_factor(facts['perplexity_ratio'])}"
    return f"{factor} [{', '.join(map(_factor, edges))}]" if len(edges) == 2 else factor


def _factor(value: float | None) -> str:
    if value is None:
        return "more than can be told"
    return f"{value:.4f}" if 0.01 <= value < 100 else f"{value:.4g}"


def _interval(edges: Sequence[float] | None) -> str:
    """`[-0.1311, -0.1150]`; empty where there is none."""
    return "" if edges is None else f"[{edges[0]:+.4f}, {edges[1]:+.4f}]"


def _unknown(found: Facts) -> Iterator[str]:
    rates = found["unknown_rate_a"], found["unknown_rate_b"]
    if any(rates):
        yield (
            f"beware: {rates[0]:.1%} of A's tokens and {rates[1]:.1%} of B's are <unk>, which is easier to guess than "
            "the words that it stands for"
        )


def _resampled(bootstrap: Facts) -> str:
    """How the intervals were made, and how many of the resampled units B wins."""
    units = f"{bootstrap['units']:,} {bootstrap['unit']}{'s' if bootstrap['units'] != 1 else ''}"
    if bootstrap.get("block_tokens"):
        units += f" of {bootstrap['block_tokens']:,} consecutive tokens"
    if bootstrap["units"] < 2:
        return f"no interval: {units} cannot be resampled"
    rough = " (few: the intervals are rough)" if bootstrap["units"] < FEW_UNITS else ""
    return (
        f"in brackets: {100 * bootstrap['confidence']:.4g}% intervals from {bootstrap['samples']:,} resamples of "
        f"{units}{rough}; B is better in {bootstrap['units_won']:,} of them"
    )


def _token_tables(found: Facts) -> Iterator[Shown]:
    frequency = found["by_frequency"]
    if frequency is not None:
        rows = [[bucket_label(b["more_than"], b["at_most"]), *_group(b)] for b in frequency["buckets"]]
        yield f"By how often a token stands in train ({frequency['corpus']})", ("times", *GROUP), rows
    rows = [[f"{r['from']:,}-{r['to']:,}", *_group(r)] for r in found["by_position"]]
    yield "By position in the document", ("tokens before", *GROUP), rows
    probed = _probed([*found["most_won"], *found["most_lost"]])
    columns = ("nats", "p(A)", "p(B)", *probed.values(), "document:position", "in context")
    for key, title in (("most_won", "Tokens that B wins most"), ("most_lost", "Tokens that B loses most")):
        yield title, columns, [_token(token, list(probed)) for token in found[key]]


def _group(facts: Facts) -> list[str]:
    return [
        f"{facts['tokens']:,}",
        f"{facts['nll_a']:.4f}",
        f"{facts['nll_b']:.4f}",
        f"{facts['difference']:+.4f}",
        _interval(facts["interval"]),
        f"{facts['won'] / facts['tokens']:.1%}",
    ]


def _probed(tokens: Sequence[Facts]) -> dict[str, str]:
    """Columns that probes added, and their headers: `gate_a` is the gate of A."""
    names = dict.fromkeys(name for token in tokens for name in token if name[-2:] in ("_a", "_b"))
    return {name: f"{name[:-2]} {name[-1].upper()}" for name in names if not name.startswith("log_p")}


def _token(token: Facts, probed: Sequence[str]) -> list[str]:
    return [
        f"{token['difference']:+.2f}",
        f"{exp(token['log_p_a']):.2g}",
        f"{exp(token['log_p_b']):.2g}",
        *(f"{token[name]:.2f}" for name in probed),
        _place(token),
        _marked(token["before"], token["text"], token["after"]),
    ]


def _place(token: Facts) -> str:
    """`3:348`, or where the document has a name `3:348 (a.txt)`."""
    called = f" ({printable(token['name'])})" if token.get("name") else ""
    return f"{token['document']}:{token['position']}{called}"


def _marked(before: str, text: str, after: str) -> str:
    """`the cat [sat] on the mat`: one line, the token between brackets, white space around it outside of them."""
    bare = text.strip() or text
    lead = text[: text.index(bare)]
    trail = text[len(lead) + len(bare) :]
    return printable(f"{before}{lead}[{bare}]{trail}{after}").strip(" ")


def _units_table(found: Facts) -> Shown:
    rows = [
        [per["unit"], f"{per['count']:,}", *(f"{per[name]:.4f}" for name in ("nll_a", "nll_b"))] for per in found["per"]
    ]
    return "Nats by unit of text", ("unit", "number", "A", "B"), rows
