"""The figures and tables of a page, under their headings."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stages.charts.curves import accuracy_charts, curve_charts
from stages.charts.data import Chart
from stages.charts.figure import Figure, figures
from stages.charts.frequency import frequency_charts
from stages.charts.learned_weight import learned_charts
from stages.charts.training import training_charts
from stages.charts.tuning import tuning_charts
from stages.diagnostics import PROBES
from stages.diagnostics.shown import probe_charts
from stages.pages.lineage import Member
from stages.pages.source import Source
from stages.pages.tables import bucket_table
from stages.pages.training import read_journals
from stages.reports.tables import Table

Item = Chart | Table


@dataclass(frozen=True)
class Section:
    """Figures and tables under a heading."""

    anchor: str
    title: str
    items: Sequence[Figure | Table]

    @property
    def figures(self) -> list[Figure]:
        return [item for item in self.items if isinstance(item, Figure)]


def sections(sources: Sequence[Source], members: Sequence[Member]) -> list[Section]:
    """The headings under which there is something to see; no two figures share a name."""
    reports = [source.report for source in sources]
    headings: Mapping[tuple[str, str], Iterable[Item]] = {
        ("memory", "More memory"): [*curve_charts(reports), *accuracy_charts(reports)],
        ("tuning", "Tuning"): [
            c for s in sources for c in s.labelled([*tuning_charts(s.metrics), *learned_charts(s.metrics)])
        ],
        ("frequency", "Frequent and rare words"): [item for s in sources for item in _frequency(s)],
        **{(name, name.replace("_", " ").capitalize()): _probe(name, sources) for name in PROBES.names()},
        ("training", "Training"): training_charts(read_journals(members)),
    }
    used: Counter[str] = Counter()
    made = [Section(*heading, list(_drawn(items, used))) for heading, items in headings.items()]
    return [section for section in made if section.items]


def _probe(name: str, sources: Sequence[Source]) -> list[Chart]:
    return [chart for one in sources for chart in one.labelled(probe_charts(one.metrics, one.files)[name])]


def _frequency(source: Source) -> Iterator[Item]:
    if source.metrics.get("frequency_buckets"):
        yield from source.labelled(frequency_charts(source.metrics))
        yield bucket_table(source)


def _drawn(items: Iterable[Item], used: Counter[str]) -> Iterator[Figure | Table]:
    """Tables as they are, charts drawn, each under a name that was not used before."""
    for item in items:
        if isinstance(item, Table):
            yield item
            continue
        used[item.name] += 1
        count = used[item.name]
        yield from figures([item if count == 1 else replace(item, name=f"{item.name}--{count}")])
