"""Sections of a page: figures and tables under their headings, and the lines about texts and
training.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stages.charts.data import Chart
from stages.charts.figure import Figure, figures
from stages.charts.report import (
    accuracy_charts,
    curve_charts,
    datastore_charts,
    frequency_charts,
    weight_charts,
)
from stages.charts.rows import rows_charts
from stages.charts.training import (
    FIGURES,
    Journal,
    measure,
    named_figures,
    stream_charts,
    training_charts,
)
from stages.diagnostics import PROBES
from stages.diagnostics.options import probe_charts
from stages.numbers import number
from stages.pages.costs import cost_items
from stages.pages.lineage import Member, in_order
from stages.pages.source import ReportSource
from stages.pages.tables import bleu_tables, bucket_table
from stages.reports.fields import CHANGED
from stages.reports.tables import Cell, Group, Note, Row, Table, figure, score_cell, share
from stages.tasks.frequent_label import FREQUENT_LABEL, frequent_label_scores
from stages.text.documents import names_in

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


def sections(sources: Sequence[ReportSource], members: Sequence[Member]) -> list[Section]:
    """The sections that are not empty; no two figures share a name."""
    reports = [source.report for source in sources]
    headings: dict[tuple[str, str], list[Item]] = {
        ("memory", "More memory"): [
            *curve_charts(reports),
            *datastore_charts(reports),
            *accuracy_charts(reports),
        ],
        ("costs", "Gain and cost"): list(cost_items(sources)),
        ("tuning", "Tuning"): [],
        ("translations", "Translations"): [
            table for source in sources for table in changed_tables(source)
        ],
        ("frequency", "Frequent and rare words"): [],
        **{(name, name.replace("_", " ").capitalize()): [] for name in PROBES.names()},
        ("training", "Training"): list(training_charts(read_journals(members))),
    }
    by_anchor = {anchor: items for (anchor, _), items in headings.items()}
    for source in sources:
        by_anchor["tuning"] += [
            *source.labelled(weight_charts(source.metrics)),
            *bleu_tables(source),
        ]
        if source.metrics.get("frequency_buckets"):
            by_anchor["frequency"] += [
                *source.labelled(frequency_charts(source.metrics)),
                bucket_table(source),
            ]
        for name, charts in probe_charts(source.metrics, source.files).items():
            by_anchor[name] += source.labelled(charts)
    used: Counter[str] = Counter()
    result = [
        Section(*heading, list(_figures_of(items, used))) for heading, items in headings.items()
    ]
    return [section for section in result if section.items]


MAX_PICTURES = 4
"""Reports that each get a picture of their rows; of more, the table tells more at a glance."""


def pictures(sources: Sequence[ReportSource]) -> list[Figure]:
    """Pictures of the rows of each report, with which the page begins."""
    if len(sources) > MAX_PICTURES:
        return []
    used: Counter[str] = Counter()
    charts = [chart for source in sources for chart in source.labelled(rows_charts(source.metrics))]
    return [item for item in _figures_of(charts, used) if isinstance(item, Figure)]


def _figures_of(items: Iterable[Item], used: Counter[str]) -> Iterator[Figure | Table]:
    """Tables unchanged, and drawn charts, each with a name that is not used yet."""
    for item in items:
        if isinstance(item, Table):
            yield item
            continue
        # Figures with the same name would share an id on the page, and a file in the folder.
        used[item.name] += 1
        count = used[item.name]
        if count > 1:
            item = replace(item, name=f"{item.name}--{count}")
        yield from figures([item])


JOURNAL = "training.jsonl"


def read_journals(members: Sequence[Member]) -> list[Journal]:
    """Read the journal of every model that has one that is not damaged; a single journal gets no
    label.
    """
    readable = []
    for member in members:
        records = _journal_records(member)
        if records:
            readable.append((member, records))
    is_single = len(readable) == 1
    return [Journal("" if is_single else member.label, records) for member, records in readable]


def _journal_records(member: Member) -> list[dict[str, Any]]:
    """The records of a model's journal; none if it has no journal, or a damaged one."""
    file = member.file(JOURNAL) if member.kind == "model" else None
    if file is None:
        return []
    try:
        lines = file.read_text("utf-8").splitlines()
        records = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError, RecursionError):
        return []
    return records if all(isinstance(record, dict) for record in records) else []


MOST_NAMED = 3
"""Maximum number of files or records that are named as the source of a split."""


def text_lines(members: Sequence[Member]) -> Iterator[str]:
    """`wiki.txt: train 172,117, test 2,619 tokens`, for each tokens artifact in a lineage that is
    still stored.

    There is one line for each set of files, with all splits that come from it.
    """
    for member in members:
        tokens = member.artifact
        if member.kind != "tokens" or tokens is None:
            continue
        splits_of_files: dict[str, list[str]] = {}
        for split in in_order(tokens.metrics["splits"]):
            names = names_in(tokens.path, split)
            files = ", ".join(names[:MOST_NAMED])
            num_unnamed = len(names) - MOST_NAMED
            if num_unnamed > 0:
                files += f" and {num_unnamed:,} more"
            count = number(tokens.metrics["splits"][split]["tokens"])
            splits_of_files.setdefault(files, []).append(f"{split} {count}")

        for files, splits in splits_of_files.items():
            yield f"{files or tokens.reference}: {', '.join(splits)} tokens"


def changed_tables(source: ReportSource) -> list[Table]:
    """A table of the sentences that memory changed most; empty if the report has none."""
    changed = source.files.get(CHANGED, {}).get("sentences", ())
    if not changed:
        return []
    name = "" if source.alone else f" of {source.label}"
    caption = (
        "The sentences whose chrF memory changed most. Below each translation stand the pairs that made its tokens "
        "likelier, with the token and what it gained."
    )
    groups = [Group(list(_rows(sentence)), Cell(sentence["source"])) for sentence in changed]
    return [
        Table(
            f"Sentences that changed most{name}",
            ("", "Text", "chrF"),
            groups,
            caption,
            frozenset(("Text",)),
        )
    ]


def _rows(sentence: Mapping[str, Any]) -> Iterator[Row]:
    """The reference, both translations with their chrF, and the pairs that memory found."""
    yield Row([Cell("reference"), Cell(sentence["reference"]), Cell("")])
    for name, score in zip(("plain", "memory"), sentence["chrf"], strict=True):
        yield Row([Cell(name), Cell(sentence[name]), figure(score, "chrf")])
    for pair in sentence["neighbors"]:
        gain = Cell(f"{pair['token']} +{pair['gain']:.2f}")
        texts = f"{pair['source'] or ''} → {pair['target']}"
        number_of_pair = f"pair {pair['pair']:,}"
        yield Row([gain, Cell(texts, None, number_of_pair), Cell("")])


Stream = tuple[Member, Mapping[str, Any]]
"""A matrix, and the content of its `metrics.json`."""


def tasks_table(streams: Sequence[Stream]) -> Table:
    """A table of the figures of every reading of every matrix."""
    groups = []
    for member, metrics in streams:
        rows = []
        for row in metrics["rows"]:
            figures = [score_cell(metrics, row[name]) for name in FIGURES]
            rows.append(Row([Cell(row["row"]), *figures]))
        rows += _control(member, metrics)

        facts = f"{member.reference}, {metrics['method']}, {len(metrics['tasks'])} tasks"
        label = Cell(member.label, None, facts, link=member.anchor)
        groups.append(Group(rows, label, f"row-{member.id}"))

    first = streams[0][1]
    score = measure(first).capitalize()
    columns = ("Memory", *named_figures(first).values())
    caption = f"{score} after the last task; what earlier tasks lost and gained since they were learnt, later ones before."
    return Table("Results", columns, groups, caption)


def _control(member: Member, metrics: Mapping[str, Any]) -> list[Row]:
    """The row of the most frequent label; empty if there is no such control, or if tokens were
    deleted.
    """
    scores = None if member.artifact is None else frequent_label_scores(member.artifact)
    if scores is None:
        return []
    by_task = ", ".join(
        f"{task} {share(score).text}" for task, score in zip(metrics["tasks"], scores, strict=True)
    )
    blank = [Cell("")] * (len(FIGURES) - 1)
    return [
        Row(
            [Cell(FREQUENT_LABEL), share(sum(scores) / len(scores)), *blank],
            [Note("by task", by_task, "")],
        )
    ]


def tasks_sections(streams: Sequence[Stream]) -> list[Section]:
    """Sections with the matrices and curves of streams of tasks."""
    charts = [
        chart if len(streams) == 1 else chart.labelled(member.label)
        for member, metrics in streams
        for chart in stream_charts(metrics)
    ]
    return [Section("tasks", "Tasks", figures(charts))] if charts else []
