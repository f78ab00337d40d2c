"""The tables of a comparison, their cells as text, for terminals and pages."""

from collections.abc import Iterator, Mapping, Sequence
from math import exp
from typing import Any

from stages.comparison.sentences import interval_text
from stages.metrics import FEW_NOTE, FEW_TOKENS, FEWEST_UNITS
from stages.numbers import bucket_label
from stages.reports.tables import Table, plain_table

Facts = Mapping[str, Any]
GROUP = ("tokens", "nats A", "nats B", "B - A", "interval", "B wins")


def group_tables(found: Facts) -> Iterator[Table]:
    """Where the difference lies, by frequency and by position; or, of two tokenizations, by unit of text."""
    if found["paired_on"] != "tokens":
        yield _units_table(found)
        return
    frequency = found["by_frequency"]
    if frequency is not None:
        rows = [[bucket_label(b["more_than"], b["at_most"]), *_group(b)] for b in frequency["buckets"]]
        title = f"By how often a token stands in train ({frequency['corpus']})"
        yield plain_table(title + _notes(frequency["buckets"], found["bootstrap"]), ("times", *GROUP), rows)
    rows = [[position_label(r), *_group(r)] for r in found["by_position"]]
    title = f"By position in the document{_notes(found['by_position'], found['bootstrap'])}"
    yield plain_table(title, ("tokens before", *GROUP), rows)


def position_label(group: Facts) -> str:
    """`16-31`."""
    return f"{group['from']:,}-{group['to']:,}"


def top_tokens(found: Facts) -> Iterator[tuple[str, Sequence[Facts]]]:
    """The tokens that B wins and loses most, each list with its title."""
    if found["paired_on"] == "tokens":
        yield "Tokens that B wins most", found["most_won"]
        yield "Tokens that B loses most", found["most_lost"]


def token_figures(token: Facts) -> dict[str, str]:
    """Figures of a token, by header: the difference, both probabilities, and what probes recorded."""
    figures = {
        "nats": f"{token['difference']:+.2f}",
        "p(A)": f"{exp(token['log_p_a']):.2g}",
        "p(B)": f"{exp(token['log_p_b']):.2g}",
    }
    return figures | {header: f"{token[name]:.2f}" for name, header in _probed(token).items()}


def _probed(token: Facts) -> dict[str, str]:
    """Columns that probes added, and their headers: `slot_weight_a` is the `slot_weight` of A."""
    names = (name for name in token if name[-2:] in ("_a", "_b") and not name.startswith("log_p"))
    return {name: f"{name[:-2]} {name[-1].upper()}" for name in names}


def _notes(groups: Sequence[Facts], bootstrap: Facts) -> str:
    """Why figures stand in parentheses, and why there is no interval, where some do and some have none."""
    notes = [FEW_NOTE] if any(group["tokens"] < FEW_TOKENS for group in groups) else []
    if any(group["interval"] is None for group in groups):
        notes.append(f"no interval: such tokens stand in fewer than {FEWEST_UNITS} {bootstrap['unit']}s")
    return f" ({'; '.join(notes)})" if notes else ""


def _group(facts: Facts) -> list[str]:
    """How many tokens it has, and its figures, in parentheses where they are of few."""
    figures = _figures(facts)
    if facts["tokens"] < FEW_TOKENS:
        figures = [f"({figure})" if figure else "" for figure in figures]
    return [f"{facts['tokens']:,}", *figures]


def _figures(facts: Facts) -> list[str]:
    return [
        f"{facts['nll_a']:.4f}",
        f"{facts['nll_b']:.4f}",
        f"{facts['difference']:+.4f}",
        interval_text(facts["interval"]),
        f"{facts['won'] / facts['tokens']:.1%}",
    ]


def _units_table(found: Facts) -> Table:
    rows = [
        [per["unit"], f"{per['count']:,}", *(f"{per[name]:.4f}" for name in ("nll_a", "nll_b"))] for per in found["per"]
    ]
    return plain_table("Nats by unit of text", ("unit", "number", "A", "B"), rows)
