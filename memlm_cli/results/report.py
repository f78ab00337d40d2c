"""Display of a report on a terminal: its table, its meaning, and what to mind."""

from collections.abc import Iterator, Sequence

from memlm_cli.console import on_terminal
from memlm_cli.reproduce import baseline_remarks, page_of
from memlm_cli.results.view import ResultTable, View
from memlm_cli.tables import cell_text, title_of
from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import write_atomically
from stages.pages.headline import headline
from stages.pages.lineage import lineage_of
from stages.pages.source import ReportSource, read_sources
from stages.pages.tables import bucket_table, page_title, results_table
from stages.reports.remarks import Remark, Severity
from stages.reports.tables import Table

OF_THE_TABLE = (
    *("unlike-baseline", "other-form", "no-intervals", "rough-intervals"),
    *("unsure-learned-weight", "too-short-to-learn"),
)
"""Codes of remarks without which figures in a report's table would be misread."""


class ReportView(View):
    """A report in four parts; `verbose`: all remarks, settings and tables, too."""

    def parts(
        self, artifact: Artifact, title: str, *, verbose: bool
    ) -> Iterator[ResultTable | str]:
        (source,) = read_sources([artifact], lineage_of([artifact]), baseline_remarks)
        rows = headline([source])
        results = results_table([source], rows)
        title = title_of(title, *_scored_text(source))
        yield ResultTable(title, results.columns, results.lines, whole=verbose)
        yield page_title([source], rows)
        urgent = most_important(source.remarks)
        for remark in source.remarks:
            if verbose or remark in urgent:
                yield remark.text
        if verbose:
            yield from _details(artifact, source, results)

    def lines(self, artifact: Artifact) -> Iterator[tuple[str, str]]:
        for row in artifact.metrics["rows"]:
            yield row["row"], f"perplexity {cell_text(row['perplexity'])}"

    def rest(self, artifact: Artifact, *, verbose: bool) -> str:
        """The page, which is written into the store if a person watches; else how to read more."""
        if on_terminal():
            page = artifact.store.root / "pages" / f"{artifact.id}.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(page, page_of([artifact]).html)
            return f"page: {page}"
        if verbose:
            return ""
        command = artifact.advise("report", artifact.reference)
        return f"all remarks, settings and figures: {command}, or --verbose"


def _scored_text(source: ReportSource) -> list[str]:
    metrics = source.metrics
    passages = (
        f"the last words of {metrics['words']:,} passages"
        if metrics.get("score") == "last-word"
        else ""
    )
    return [metrics["split"], f"{metrics['tokens']:,} tokens", passages]


def _details(
    artifact: Artifact, source: ReportSource, results: Table
) -> Iterator[ResultTable | str]:
    """Settings of each row, perplexities by frequency, and the folder of figures."""
    for row in results.rows:
        if row.notes:
            notes = "; then ".join(note.plain for note in row.notes)
            yield f"{row.cells[0].text}: {notes}"
    if source.metrics.get("frequency_buckets"):
        buckets = bucket_table(source)
        yield ResultTable(buckets.title, buckets.columns, list(buckets.lines))
    if any(file.startswith("figures/") for file in artifact.manifest.files):
        yield f"figures: {artifact.path / 'figures'}"


def most_important(remarks: Sequence[Remark]) -> Sequence[Remark]:
    """Remarks to show at once: all that refute a gain, else the first that weakens it.

    Remarks that explain figures of the table are included.
    """
    severe = [remark for remark in remarks if remark.severity == Severity.SEVERE]
    first = severe or [remark for remark in remarks if remark.severity == Severity.CAUTION][:1]
    explaining = [remark for remark in remarks if remark.code in OF_THE_TABLE]
    return [*first, *(remark for remark in explaining if remark not in first)]
