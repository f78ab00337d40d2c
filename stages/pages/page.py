"""A web page of reports: a self-contained file without scripts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import write_atomically
from stages.charts import figure as drawing
from stages.charts.data import csv_text
from stages.charts.figure import Figure
from stages.charts.training import FIGURES, measure
from stages.errors import ArtifactError, UsageError, content_of
from stages.numbers import duration, size
from stages.pages.headline import (
    ReportRow,
    comparison_words,
    headline,
    headline_csv,
    means_over_seeds,
    rankings,
    seed_tables,
)
from stages.pages.lineage import (
    Member,
    artifacts_csv,
    device,
    facts,
    lineage_chart,
    lineage_of,
    speeds,
)
from stages.pages.sections import (
    Section,
    Stream,
    pictures,
    sections,
    tasks_sections,
    tasks_table,
    text_lines,
)
from stages.pages.source import METRICS, LongerRemarks, ReportSource, read_sources, shared_remarks
from stages.pages.tables import page_title, ranking_table, results_table, seeds_table
from stages.web import marked, render

TEMPLATE = Path(__file__).parent / "templates" / "page.html"
Script = Callable[[Mapping[str, Member]], str]
"""Writes the commands that make a lineage."""
Title = Callable[[Sequence[ReportSource], Sequence[ReportRow]], str]
"""Writes the page's title from its results."""


@dataclass(frozen=True)
class Page:
    """A page ready to be written, and its figures."""

    html: str
    figures: Sequence[Figure]
    tables: Mapping[str, str]
    """CSV texts by name."""


def build_page(
    reports: Sequence[Artifact],
    script: Script,
    more: LongerRemarks,
    title: Title = page_title,
    left_out: Mapping[Artifact, ArtifactError] = {},
) -> Page:
    """Build the page of some reports; the same store gives the same page.

    Args:
        reports: reports to show, in this order; their files have been checked.
        script: writes the commands that made them.
        more: remarks on a report that do not follow from its own numbers.
        left_out: reports that cannot be shown, and why; they appear in the lineage.
    Raises: ArtifactError if the numbers of a report cannot be read.
    """
    members = lineage_of([*reports, *left_out])
    for report, why in left_out.items():
        members[report.reference] = replace(
            members[report.reference], remark=f"left out: {str(why).rstrip('.')}"
        )
    with content_of(Path(", ".join(str(report.file(METRICS)) for report in reports))):
        if reports[0].kind == "matrix":
            return _tasks_page(
                [(members[one.reference], one.json(METRICS)) for one in reports], members, script
            )
        return _page(read_sources(reports, members, more), members, script, title)


def _page(
    sources: Sequence[ReportSource], members: Mapping[str, Member], script: Script, title: Title
) -> Page:
    """The page of reports of one text or of several."""
    reports = [source.member.artifact for source in sources]
    seeds = seed_tables([report for report in reports if report])
    rows = headline(sources, means_over_seeds(seeds))
    seeds_tables = map(seeds_table, seeds)
    ranking_tables = map(ranking_table, rankings(rows))
    return _assemble(
        sections(sources, list(members.values())),
        members,
        script,
        headline_csv(rows),
        pictured=pictures(sources),
        title=title(sources, rows),
        results=results_table(sources, rows),
        compared=comparison_words(rows),
        rankings=[*seeds_tables, *ranking_tables],
        remarks=shared_remarks(sources),
    )


def _tasks_page(streams: Sequence[Stream], members: Mapping[str, Member], script: Script) -> Page:
    """The page of streams of tasks."""
    rows = []
    lines = []
    for member, metrics in streams:
        for row in metrics["rows"]:
            figures = [row[name] for name in FIGURES]
            rows.append(row)
            lines.append((member.reference, row["row"], *figures))

    # AP is a perplexity: the smallest is the best
    first = streams[0][1]
    score = first.get("score")
    choose = min if score else max
    best = choose(rows, key=lambda row: row["average"])
    average = best["average"]
    best_score = f"AP {average:.2f}" if score else f"{measure(first)} {average:.1%}"

    num_matrices = "" if len(streams) == 1 else f"{len(streams)} matrices, "
    return _assemble(
        tasks_sections(streams),
        members,
        script,
        csv_text([("matrix", "row", *FIGURES), *lines]),
        title=f"{num_matrices}{best['row']}: {best_score} after {len(first['tasks'])} tasks",
        results=tasks_table(streams),
        compared="",
        rankings=[],
        remarks=[],
    )


def _assemble(
    parts: Sequence[Section],
    members: Mapping[str, Member],
    script: Script,
    results_csv: str,
    pictured: Sequence[Figure] = (),
    **values: Any,
) -> Page:
    """Build a page from its own sections and those of every page: texts, lineage, artifacts and
    commands.
    """
    everything = list(members.values())
    lineage = Figure.of(lineage_chart(everything))
    tables = {"results": results_csv, "artifacts": artifacts_csv(everything)}
    html = render(
        TEMPLATE,
        texts=list(text_lines(everything)),
        pictures=pictured,
        sections=parts,
        artifacts=everything,
        lineage=lineage,
        tables=tables,
        script=script(members),
        missing=[member for member in everything if member.remark],
        **{"facts": facts, "speeds": speeds, "device": device, "size": size, "duration": duration},
        **values,
    )
    figures = [*pictured, *(figure for part in parts for figure in part.figures), lineage]
    return Page(html, figures, tables)


ALWAYS_DRAWN = "lineage.svg"
"""A drawing of every page. If memlm wrote it, memlm also wrote the tables next to it, which have no
mark.
"""


def check_figures_folder(folder: Path) -> None:
    """Check that a folder may be filled with figures.

    Raises: UsageError if the path is no folder, or has tables or drawings that memlm did not
    write.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--figures {folder} is no folder; name another.")
    # the drawing that is in each folder of memlm shows that its tables are memlm's, too
    is_ours = marked(folder / ALWAYS_DRAWN, drawing.MARK)
    tables = [] if is_ours else folder.glob("*.csv")
    drawings = (path for path in folder.glob("*.svg") if not marked(path, drawing.MARK))
    other_file = next(chain(drawings, tables), None)
    if other_file is not None:
        raise UsageError(
            f"--figures {folder} holds {other_file.name}, which memlm did not write; name another folder."
        )


def write_figures(page: Page, folder: Path) -> list[Path]:
    """Write figures as NAME.svg, and their numbers and the tables as NAME.csv; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {}
    for figure in page.figures:
        texts[f"{figure.name}.svg"] = figure.svg
        texts[f"{figure.name}.csv"] = figure.csv
    for name, text in page.tables.items():
        texts[f"{name}.csv"] = text

    paths = []
    for name, text in texts.items():
        path = folder / name
        write_atomically(path, text)
        paths.append(path)
    return paths
