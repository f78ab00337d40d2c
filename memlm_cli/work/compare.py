"""Work of `memlm compare`."""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from memlm_cli.arguments import read_reference
from memlm_cli.console import answer, answers_on_terminal, printable, say, write_html
from memlm_cli.options import StoreOptions
from memlm_cli.progress import ConsoleReporter
from memlm_cli.reproduce import report_with_scores
from memlm_cli.results.groups import costs_text, groups_text, letters
from memlm_cli.tables import table_text
from stages.artifacts.artifact import Artifact, checked
from stages.artifacts.store import Store
from stages.comparison.compare import TABLE_HEAD, write_token_table
from stages.comparison.compare import compare as compare_reports
from stages.comparison.page import page
from stages.comparison.sentences import group_tables, sentences, token_figures, top_tokens
from stages.comparison.settings import ComparisonSettings
from stages.comparison.tasks import (
    compare_matrices,
    compare_task_seeds,
    matrices_table,
    task_seeds_table,
)
from stages.errors import ArtifactError, UsageError
from stages.evaluation.figures.seed_groups import compare_groups
from stages.evaluation.figures.token_scores import has_scores
from stages.reports.tables import Table, plain_table
from stages.web import check_page_file

Facts = Mapping[str, Any]


def compare(
    reports: list[str],
    csv: Path | None,
    html: Path | None,
    *,
    settings: ComparisonSettings,
    store_options: StoreOptions,
) -> None:
    """Carry out `memlm compare`."""
    if len(reports) > 2:
        _require_none("three and more reports", csv, html)
        _answer(
            *_means_over_seeds(reports, settings.confidence, store_options.open_store()),
            store_options,
        )
        return
    a = reports[0]
    b = reports[1] if len(reports) > 1 else None
    if csv is not None:
        check_page_file("--csv", csv, TABLE_HEAD)
    if html is not None:
        check_page_file("--html", html)
    opened = store_options.open_store()
    second = "the other report, too (memlm compare A B; memlm artifacts list report)"
    report_a, report_b = (
        opened.get(read_reference(reference, second), "report", "matrix") for reference in (a, b)
    )
    if report_a.reference == report_b.reference:
        raise UsageError(
            f"A and B are the same report, {report_a.reference}: name another one (memlm artifacts list report)."
        )
    if "matrix" in (report_a.kind, report_b.kind):
        _require_none("matrices", csv, html)
        _answer(*_compare_matrices(report_a, report_b), store_options)
        return
    for report in (report_a, report_b):
        _require_scores(report)
    with ConsoleReporter("compare") as reporter:
        facts = compare_reports(report_a, report_b, settings, reporter.progress)
        if csv is not None:
            written = write_token_table(csv, report_a, report_b, settings, reporter.progress)
            reporter.info(f"{written:,} tokens in {csv}")
    if html is not None:
        write_html("compare", html, page(facts))
    _answer(facts, comparison_text(facts), store_options)


def _answer(facts: Facts, text: str, store_options: StoreOptions) -> None:
    answer(json.dumps(facts, allow_nan=False) if store_options.json else text, styled=True)


def _compare_matrices(a: Artifact, b: Artifact) -> tuple[Facts, str]:
    """Compare two streams of tasks. Raises: ArtifactError if one is a report of text."""
    if a.kind != b.kind:
        raise ArtifactError(
            f"{a.reference} and {b.reference} are of text and of tasks: compare two of a kind."
        )
    facts = compare_matrices(a, b)
    return facts, table_text(matrices_table(facts), terminal=answers_on_terminal())


def _require_none(of: str, csv: Path | None, html: Path | None) -> None:
    """Refuse files that only a comparison of two reports has. Raises: UsageError."""
    for option, path in {"--csv": csv, "--html": html}.items():
        if path is not None:
            raise UsageError(
                f"{option} shows the tokens of two reports, and there is none of {of}: name two."
            )


def _means_over_seeds(references: list[str], confidence: float, store: Store) -> tuple[Facts, str]:
    """Compare means of reports, or of streams of tasks. Raises: ArtifactError if there are some of
    each.
    """
    opened = [store.open(reference, "report", "matrix") for reference in references]
    readable = checked(opened, lambda _, why: say(f"compare: left out: {why}"), ("model", "tokens"))
    if "matrix" not in {report.kind for report in readable}:
        facts = compare_groups(readable, confidence)
        terminal = answers_on_terminal()
        text = groups_text(facts, terminal=terminal)
        count = len(facts["groups"])
        if count > 1:
            text += f"\n\n{costs_text(facts, letters(count), terminal=terminal)}"
        return facts, text
    for report in readable:
        if report.kind != readable[0].kind:
            raise ArtifactError(
                f"{readable[0].reference} and {report.reference} are of two kinds: compare those of one."
            )
    facts = compare_task_seeds(readable, confidence)
    shown = task_seeds_table(facts)
    return facts, f"{table_text(shown, terminal=answers_on_terminal())}\n\n{shown.caption}"


def _require_scores(report: Artifact) -> None:
    """Check that a report has token scores. Raises: ArtifactError, with the command that makes one
    that has.
    """
    if not has_scores(report):
        command = report_with_scores(report)
        raise ArtifactError(
            f"{report.reference} has no token scores; make a report that has: {command}"
        )


def comparison_text(facts: Facts) -> str:
    """Text of a comparison by `stages.comparison.compare.compare`: sentences, then tables."""
    shown = [*group_tables(facts), *_token_tables(facts)]
    tables = (table_text(part, terminal=answers_on_terminal()) for part in shown if part.rows)
    return "\n\n".join(["\n".join(sentences(facts)), *tables])


def _token_tables(facts: Facts) -> Iterator[Table]:
    for title, tokens in top_tokens(facts):
        all_figures = [token_figures(token) for token in tokens]
        # every header once, in the order of the first tokens that have it
        headers = list(dict.fromkeys(chain.from_iterable(all_figures)))
        rows = []
        for figures, token in zip(all_figures, tokens, strict=True):
            row = [figures.get(header, "") for header in headers]
            row.append(_place(token))
            row.append(_marked(token["before"], token["text"], token["after"]))
            rows.append(row)
        yield plain_table(title, [*headers, "document:position", "in context"], rows)


def _place(token: Facts) -> str:
    """`3:348`, or `3:348 (a.txt)` if the document has a name."""
    called = f" ({printable(token['name'])})" if token.get("name") else ""
    return f"{token['document']}:{token['position']}{called}"


def _marked(before: str, text: str, after: str) -> str:
    """`the cat [sat] on the mat`: one line, the token between brackets, white space around it
    outside of them.
    """
    bare = text.strip() or text
    lead = text[: text.index(bare)]
    trail = text[len(lead) + len(bare) :]
    return printable(f"{before}{lead}[{bare}]{trail}{after}").strip(" ")
