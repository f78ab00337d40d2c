"""A comparison of two reports, and of reports over several seeds, as text for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlm_cli.console import answers_on_terminal, printable
from memlm_cli.tables import text_of
from stages.pages.tables import seeds_table
from stages.reports.remarks.table import SEEDS, remarks_on
from stages.reports.tables import Table, plain_table

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.reports.remarks.remark import Remark

Facts = Mapping[str, Any]


def comparison_text(found: Facts) -> str:
    """Text of a comparison by `stages.comparison.compare.compare`: sentences, then tables."""
    from stages.comparison.sentences import group_tables, sentences

    terminal = answers_on_terminal()
    shown = [*group_tables(found), *_token_tables(found)]
    return "\n\n".join(
        ["\n".join(sentences(found)), *(text_of(one, one.title, terminal=terminal) for one in shown if one.rows)]
    )


def baseline_remarks(report: "Artifact") -> "list[Remark]":
    """The comparison with the baseline, where token scores allow it, and the fair baseline of a model with memory."""
    from memlm_cli.reproduce import twin_remarks

    return [*_against_baseline(report), *twin_remarks(report)]


def _against_baseline(report: "Artifact") -> "Iterator[Remark]":
    if "baseline" not in report.manifest.inputs:
        return  # what compares takes long to load
    from stages.comparison.compare import against_baseline
    from stages.comparison.sentences import baseline_values
    from stages.reports.remarks.table import remark

    found = against_baseline(report)
    if found is not None:
        yield remark("against-baseline", baseline_values(found))


def _token_tables(found: Facts) -> Iterator[Table]:
    from stages.comparison.sentences import token_figures, top_tokens

    for title, tokens in top_tokens(found):
        headers = list(dict.fromkeys(header for token in tokens for header in token_figures(token)))
        columns = [*headers, "document:position", "in context"]
        yield plain_table(title, columns, [_token(token, headers) for token in tokens])


def _token(token: Facts, headers: list[str]) -> list[str]:
    from stages.comparison.sentences import token_figures

    figures = token_figures(token)
    return [
        *(figures.get(header, "") for header in headers),
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


Figures = Mapping[str, Any]


def groups_text(found: Figures, labels: Sequence[str] | None = None, *, terminal: bool = False) -> str:
    """Text of `compare_groups`: a line for each row of each group, then the groups.

    Args:
        labels: what the groups are called; None: A, B, …
        terminal: whether a terminal shows it.
    """
    names = labels or [chr(ord("A") + n) if n < 26 else f"A{n}" for n in range(len(found["groups"]))]
    table = seeds_table(found, names)
    groups = [{**group, "label": name} for name, group in zip(names, found["groups"], strict=True)]
    remarks = [remark.text for remark in remarks_on(SEEDS, {**found, "groups": groups})]
    heads = [f"{one.head.text}: {one.head.soft}" for one in table.groups if one.head]
    return "\n".join([text_of(table, "", terminal=terminal), "", *remarks, *heads])
