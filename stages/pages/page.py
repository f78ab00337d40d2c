"""One web page of reports: everything in one file, nothing fetched, no script."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from stages.artifacts.artifact import Artifact
from stages.charts.drawing.figure import Figure, csv_text
from stages.pages.artifacts import artifact_rows, artifacts_table, lineage_graph
from stages.pages.frequency import BucketTable, frequency_items
from stages.pages.gate import gate_figures
from stages.pages.headline import headline, headline_csv, measures_shown, rankings
from stages.pages.lineage import Member, lineage_of
from stages.pages.memory_size import accuracy_figures, amount_figures
from stages.pages.rendering import render
from stages.pages.source import Source, read_sources
from stages.pages.training import training_figures
from stages.pages.tuning import tuning_figures

Script = Callable[[Mapping[str, Member]], str]
"""Spells the commands that make a lineage."""


@dataclass(frozen=True)
class Section:
    """Figures and tables under a heading."""

    anchor: str
    title: str
    items: Sequence[Figure | BucketTable]

    @property
    def figures(self) -> list[Figure]:
        return [item for item in self.items if isinstance(item, Figure)]


@dataclass(frozen=True)
class Page:
    """A page ready to be written, and its figures."""

    html: str
    figures: Sequence[Figure]
    tables: Mapping[str, str]
    """Name -> CSV."""


def build_page(reports: Sequence[Artifact], script: Script) -> Page:
    """The page of some reports; the same store gives the same page.

    Args:
        reports: what to show, in this order; their files checked.
        script: spells the commands that made them.
    Raises: ArtifactError for a report whose numbers cannot be read.
    """
    members = lineage_of(reports)
    sources = read_sources(reports, members)
    rows, artifacts = headline(sources), artifact_rows(list(members.values()))
    sections = _sections(sources, list(members.values()))
    lineage = lineage_graph(list(members.values()))
    tables = {"results": headline_csv(rows), "artifacts": csv_text(*artifacts_table(artifacts))}
    html = render(
        title=_title(sources),
        sources=sources,
        rows=rows,
        measures=measures_shown(rows),
        rankings=rankings(rows),
        sections=sections,
        artifacts=artifacts,
        lineage=lineage,
        tables=tables,
        script=script(members),
        missing=[member for member in members.values() if member.remark],
    )
    return Page(html, [*(figure for section in sections for figure in section.figures), lineage], tables)


def _sections(sources: Sequence[Source], members: Sequence[Member]) -> list[Section]:
    """The headings under which there is something to see; no two figures share a name."""
    sections = [
        Section("memory", "More memory", [*amount_figures(sources), *accuracy_figures(sources)]),
        Section("tuning", "Tuning", tuning_figures(sources)),
        Section("frequency", "Frequent and rare words", frequency_items(sources)),
        Section("gate", "Gate", gate_figures(sources)),
        Section("training", "Training", training_figures(members)),
    ]
    used: Counter[str] = Counter()
    return [replace(s, items=[_named_apart(item, used) for item in s.items]) for s in sections if s.items]


def _named_apart(item: Figure | BucketTable, used: Counter[str]) -> Figure | BucketTable:
    """A figure under a name that was not used before."""
    if not isinstance(item, Figure):
        return item
    used[item.name] += 1
    count = used[item.name]
    return item if count == 1 else replace(item, name=f"{item.name}--{count}")


def _title(sources: Sequence[Source]) -> str:
    texts = dict.fromkeys(source.scored for source in sources)
    what = f"Report {sources[0].label}" if len(sources) == 1 else f"{len(sources)} reports"
    return f"{what}: {', '.join(texts)}"
