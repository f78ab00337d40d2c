"""A report on stderr: its table, what it means, what to mind, and where the rest stands."""

from pathlib import Path
from typing import TYPE_CHECKING

from memlm_cli.comparison_text import baseline_remarks
from memlm_cli.console import note, on_terminal, say
from memlm_cli.tables import show, title_of
from stages.pages.headline import headline
from stages.pages.lineage import lineage_of
from stages.pages.source import read_sources
from stages.pages.tables import bucket_table, results_table
from stages.pages.title import page_title
from stages.reports.remarks.remark import Remark, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stages.artifacts.artifact import Artifact
    from stages.pages.source import Source


def show_report(title: str, artifact: "Artifact", *, verbose: bool = False) -> None:
    """A report in four parts; `verbose`: all remarks, settings and tables, too."""
    (source,) = read_sources([artifact], lineage_of([artifact]), baseline_remarks)
    rows = headline([source])
    results = results_table([source], rows)
    show(results, title_of(title, source.metrics["split"], _scored(source)))
    say(page_title([source], rows))
    said = source.remarks if verbose else to_mind(source.remarks)
    for remark in source.remarks:
        (say if remark in said else note)(remark.text)
    if verbose:
        for row in results.rows:
            if row.notes:
                say(f"{row.cells[0].text}: {'; then '.join(one.plain for one in row.notes)}")
        if source.metrics.get("frequency_buckets"):
            show(bucket_table(source))
        if any(file.startswith("figures/") for file in artifact.manifest.files):
            say(f"figures: {artifact.path / 'figures'}")


def to_mind(remarks: "Sequence[Remark]") -> "Sequence[Remark]":
    """Remarks that must be said at once: all that makes a gain none, else the first that makes little of it."""
    severe = [remark for remark in remarks if remark.severity == Severity.SEVERE]
    return severe or [remark for remark in remarks if remark.severity == Severity.CAUTION][:1]


def tell_rest(artifact: "Artifact", *, verbose: bool = False) -> None:
    """Name the page of a report, written beside the store's artifacts where a person watches."""
    if on_terminal():
        say(f"page: {_written(artifact)}")
    elif not verbose:
        say(f"all remarks, settings and figures: {artifact.advise('report', artifact.reference)}, or --verbose")


def _written(artifact: "Artifact") -> Path:
    from memlm_cli.reproduce import script
    from stages.pages.page import build_page, write_page

    path = artifact.store.root / "pages" / f"{artifact.id}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(build_page([artifact], script, baseline_remarks), path)
    return path


def _scored(source: "Source") -> str:
    """The scored text: `4,321 tokens`, or `700 tokens, the last words of 500 passages`."""
    report = source.metrics
    passages = f", the last words of {report['words']:,} passages" if report.get("score") == "last-word" else ""
    return f"{report['tokens']:,} tokens{passages}"
