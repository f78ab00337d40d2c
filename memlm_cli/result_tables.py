"""The result of a stage on stderr: tables; for a report also its meaning, warnings, and the place
of its page.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlm_cli.console import on_terminal, say
from memlm_cli.tables import cell_text, show_table, table, title_of
from stages.errors import ArtifactError
from stages.numbers import duration, figure_name, size
from stages.reporting import first_process
from stages.text.tokens import SPLITS

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.reports.remarks import Remark

Figures = Mapping[str, Any]

SPLIT_COLUMNS = {
    **{name: name for name in ("documents", "tokens")},
    "source_tokens": "source tokens",
    "types": "types",
    "unknown_rate": "unknown",
    "words": "words + line ends",
    **{name: name for name in ("characters", "bytes", "paragraphs")},
    "share": "share of text",
}
"""Figures of a split of tokens, and their headers; fractions are shares of a whole."""
FIGURES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "bytes": ("on disk", size),
    "key": (
        "key",
        lambda key: {"ffn-input": "ffn-input, what enters the last feed-forward layer"}.get(
            key, key
        ),
    ),
    "lossless": ("keys", lambda whole: "stored whole" if whole else "stored as codes"),
}
"""Figures of artifacts that are not shown under their own names."""
SAID = ("passes", "still_falling")
"""Figures of a model in the sentence below its table."""
RECALL = (
    "recall@k: of the k nearest keys of each of these queries, the share that is found; queries/s@k: how many a second "
    "are answered with k of them"
)
OF_THE_TABLE = (
    *("unlike-baseline", "other-form", "no-intervals", "rough-intervals"),
    *("unsure-learned-weight", "too-short-to-learn"),
)
"""Codes of remarks without which figures in a report's table would be misread."""
SPLIT_WORDS = {
    "documents": "files or records, or what --documents says",
    "paragraphs": "lines up to a blank one, by which shared text is found",
    "types": "types of the vocabulary that occur in a split",
}
EXAMPLE_WORDS = {
    "pairs": {"documents": "pairs of sentences"},
    "documents": {"documents": "records with a label"},
}
"""Meaning of the column if examples are not streams of text."""
UNUSED_TYPES = "the vocabulary of bpe also holds all 256 bytes, and the parts of its longer types"


def show_result(
    artifact: "Artifact", named: bool = False, variant: str = "", *, verbose: bool = False
) -> None:
    """Show the tables of an artifact's kind; `named`: its reference is on the screen already.

    Args:
        variant: variant of the recipe, if there are several: `seed 2`.
        verbose: whether all remarks, settings and tables of a report are shown.
    """
    if not first_process():
        return
    title = "" if named else title_of(artifact.reference, variant)
    if artifact.kind == "tokens":
        _show_splits(title, artifact)
    elif artifact.kind == "report":
        show_report(title, artifact, verbose=verbose)
    elif artifact.kind == "matrix":
        _show_matrix(title, artifact)
    else:
        _show_figures(title, artifact)


def tell_rest(artifact: "Artifact", *, verbose: bool = False) -> None:
    """Write the page of a report into the store, if a person watches, and name it; other artifacts
    have no page.
    """
    if artifact.kind != "report" or not first_process():
        return
    if on_terminal():
        from memlm_cli.reproduce import page_of
        from stages.artifacts.durable import write_atomically

        page = artifact.store.root / "pages" / f"{artifact.id}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(page, page_of([artifact]).html)
        say(f"page: {page}")
    elif not verbose:
        say(
            f"all remarks, settings and figures: {artifact.advise('report', artifact.reference)}, or --verbose"
        )


def _show_figures(title: str, artifact: "Artifact") -> None:
    on_disk = {"bytes": artifact.manifest.bytes} if "bytes" in artifact.metrics else {}
    show_table(title, ("", ""), list(_plain({**artifact.metrics, **on_disk})))
    if artifact.kind == "index" and "recall" in artifact.metrics:
        say(RECALL)
    if artifact.kind == "model":
        from stages.reports.remarks.table import MODEL, remarks_on

        head = artifact.config.get("model", {}).get("head")
        for remark in remarks_on(MODEL, {**artifact.metrics, **_validated(artifact), "head": head}):
            say(remark.text)


def _show_matrix(title: str, matrix: "Artifact") -> None:
    """Show the scores after each task and the figures of the stream: percent with a control, or
    perplexities.
    """
    from stages.charts.training import named_figures
    from stages.tasks.frequent_label import (
        FREQUENT_LABEL,
        below_frequent_label,
        frequent_label_scores,
    )

    metrics, control = matrix.metrics, frequent_label_scores(matrix)
    spelled = "{:.2f}" if metrics.get("score") else "{:.1%}"

    # A single column names a row, so that each part of a split table begins with it.
    after = ["before", *(f"after {task}" for task in metrics["tasks"])]
    several = len(metrics["rows"]) > 1
    rows = [
        [f"{row['row']} {after[place]}" if several else after[place], *map(spelled.format, scores)]
        for row in metrics["rows"]
        for place, scores in zip(metrics["after"], row["matrix"], strict=True)
    ]
    if control is not None:
        rows.append([FREQUENT_LABEL, *map(spelled.format, control)])
    memory = "" if several else metrics["rows"][0]["row"]
    show_table(title_of(title, metrics["method"], memory), ("", *metrics["tasks"]), rows)
    for row in metrics["rows"]:
        figures = named_figures(metrics).items()
        known = [
            f"{said} {spelled.format(row[name])}" for name, said in figures if row[name] is not None
        ]
        say(f"{row['row']}: {', '.join(known)}")
    for sentence in below_frequent_label(matrix):
        say(sentence)


def _validated(model: "Artifact") -> Figures:
    """The validation split of a model, and its share of unknown tokens; empty if the tokens are
    gone.
    """
    if model.metrics.get("valid_perplexity") is None:
        return {}
    try:
        rate = model.input("tokens").metrics["splits"]["valid"]["unknown_rate"]
    except ArtifactError:
        return {}
    return {"split": "valid", "unknown_rate": rate}


def _plain(metrics: Figures) -> Iterator[tuple[str, str]]:
    """Names and values for people; figures by number (`recall`) become `recall@1`, `recall@4`, …"""
    for name, value in metrics.items():
        if name in SAID:
            continue
        if isinstance(value, Mapping):
            if all(k.isdigit() for k in value):
                for k in sorted(value, key=int):
                    if isinstance(value[k], int | float):
                        yield f"{figure_name(name)}@{k}", cell_text(value[k])
        elif name in FIGURES:
            shown, spelled = FIGURES[name]
            yield shown, spelled(value)
        elif isinstance(value, str | int | float):
            yield figure_name(name), cell_text(value)


def artifact_rows(artifact: "Artifact", names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """An artifact for people: how it was made, and its figures; a report has one line per row."""
    manifest, metrics = artifact.manifest, artifact.metrics
    yield (
        "artifact",
        ", ".join([artifact.reference, *(f"{artifact.kind}/{name}" for name in names)]),
    )
    yield "command", shlex.join(["memlm", *manifest.command])
    if manifest.inputs:
        yield (
            "from",
            " ".join(dict.fromkeys(record.reference for record in manifest.inputs.values())),
        )
    yield "made", f"{manifest.created[:16].replace('T', ' ')}, in {duration(manifest.seconds)}"
    yield "size", f"{size(artifact.bytes)}, {len(manifest.files)} files"
    if artifact.kind == "report":
        yield from (
            (row["row"], f"perplexity {cell_text(row['perplexity'])}") for row in metrics["rows"]
        )
        return
    if artifact.kind == "tokens":
        for split in SPLITS:
            if (found := metrics["splits"].get(split)) is not None:
                yield split, f"{found['tokens']:,} tokens; documents: {found['documents']:,}"
    yield from _plain(metrics)


def _show_splits(title: str, artifact: "Artifact") -> None:
    metrics, asked = artifact.metrics, artifact.config.get("vocab_size")
    types, columns = (
        metrics["vocabulary_size"],
        {name for split in metrics["splits"].values() for name in split},
    )
    fewer = f" (of {asked:,} at most: train gives no more)" if asked and types < asked else ""
    title = title_of(title, metrics["tokenizer"], f"{types:,} types{fewer}")
    show_table(title, *splits_table(metrics["splits"]))
    own = EXAMPLE_WORDS.get(metrics.get("examples", ""), {})
    words = [f"{name}: {means}" for name, means in (SPLIT_WORDS | own).items() if name in columns]
    say("; ".join([*words, *([UNUSED_TYPES] if metrics["tokenizer"] == "bpe" else [])]))


def splits_table(splits: Mapping[str, Figures]) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: one row per split of tokens; rates and shares in percent."""
    columns = [name for name in SPLIT_COLUMNS if any(name in split for split in splits.values())]
    rows = [
        [
            split,
            *(
                f"{v:.2%}" if isinstance(v, float) else cell_text(v)
                for v in map(splits[split].get, columns)
            ),
        ]
        for split in SPLITS
        if split in splits
    ]
    return ["split", *(SPLIT_COLUMNS[name] for name in columns)], rows


def show_report(title: str, artifact: "Artifact", *, verbose: bool = False) -> None:
    """A report in four parts; `verbose`: all remarks, settings and tables, too."""
    from memlm_cli.reproduce import baseline_remarks
    from stages.pages.headline import headline
    from stages.pages.lineage import lineage_of
    from stages.pages.source import read_sources
    from stages.pages.tables import bucket_table, page_title, results_table

    (source,) = read_sources([artifact], lineage_of([artifact]), baseline_remarks)
    rows = headline([source])
    results = results_table([source], rows)
    metrics = source.metrics
    passages = (
        f"the last words of {metrics['words']:,} passages"
        if metrics.get("score") == "last-word"
        else ""
    )
    title = title_of(title, metrics["split"], f"{metrics['tokens']:,} tokens", passages)
    show_table(title, results.columns, results.lines, whole=verbose)
    say(page_title([source], rows))
    said = to_mind(source.remarks)
    for remark in source.remarks:
        if verbose or remark in said:
            say(remark.text)
    if verbose:
        for row in results.rows:
            if row.notes:
                say(f"{row.cells[0].text}: {'; then '.join(one.plain for one in row.notes)}")
        if metrics.get("frequency_buckets"):
            buckets = bucket_table(source)
            show_table(buckets.title, buckets.columns, buckets.lines)
        if any(file.startswith("figures/") for file in artifact.manifest.files):
            say(f"figures: {artifact.path / 'figures'}")


def to_mind(remarks: "Sequence[Remark]") -> "Sequence[Remark]":
    """Remarks to show at once: all that refute a gain, else the first that weakens it.

    Remarks that explain figures of the table are included.
    """
    from stages.reports.remarks import Severity

    severe = [remark for remark in remarks if remark.severity == Severity.SEVERE]
    first = severe or [remark for remark in remarks if remark.severity == Severity.CAUTION][:1]
    return [
        *first,
        *(remark for remark in remarks if remark.code in OF_THE_TABLE and remark not in first),
    ]


def groups_text(
    found: Figures, labels: Sequence[str] | None = None, *, terminal: bool = False
) -> str:
    """Text for `compare_groups`: a line for each row of each group, then the groups.

    Args:
        labels: names of the groups; None: A, B, …
        terminal: whether it is for a terminal.
    """
    names = labels or [
        chr(ord("A") + n) if n < 26 else f"A{n}" for n in range(len(found["groups"]))
    ]
    from stages.pages.tables import seeds_table
    from stages.reports.remarks.table import SEEDS, remarks_on

    shown = seeds_table(found, names)
    groups = [{**group, "label": name} for name, group in zip(names, found["groups"], strict=True)]
    remarks = [remark.text for remark in remarks_on(SEEDS, {**found, "groups": groups})]
    heads = [f"{one.head.text}: {one.head.soft}" for one in shown.groups if one.head]
    lines = table("", shown.columns, shown.lines, terminal=terminal)
    return "\n".join([lines, "", shown.caption, *remarks, *heads])
