"""Tables of a stage's results, on stderr."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from memlm_cli.console import say
from memlm_cli.progress import figure_name
from memlm_cli.tables import cell_text, show_table, title_of
from stages.errors import ArtifactError
from stages.numbers import size
from stages.reporting import first_process
from stages.text.tokens import SPLITS

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

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
"""Figures of a split of tokens, and their headers; those that are no whole numbers are parts of a whole."""
FIGURES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "bytes": ("on disk", size),
    "key": ("key", lambda key: {"ffn-input": "ffn-input, what enters the last feed-forward layer"}.get(key, key)),
    "lossless": ("keys", lambda whole: "stored whole" if whole else "stored as codes"),
}
"""Figures of artifacts that are not shown under their own name, as they stand."""
SAID = ("passes", "still_falling")
"""Figures of a model that a sentence below its table tells."""
RECALL = (
    "recall@k: of the k nearest keys of each of these queries, the share that is found; queries/s@k: how many a second "
    "are answered with k of them"
)
SPLIT_WORDS = {
    "documents": "files or records, or what --documents says",
    "paragraphs": "lines up to a blank one, by which shared text is found",
    "types": "types of the vocabulary that occur in a split",
}
EXAMPLE_WORDS = {"pairs": {"documents": "pairs of sentences"}, "documents": {"documents": "records with a label"}}
"""Meaning of the column where examples are no streams of text."""
UNUSED_TYPES = "the vocabulary of bpe also holds all 256 bytes, and the parts of its longer types"


def show_result(artifact: "Artifact", named: bool = False, variant: str = "", *, verbose: bool = False) -> None:
    """The tables of an artifact's kind; `named`: its reference stands on the screen already.

    Args:
        variant: of a recipe that runs in several, which one it is of: `seed 2`.
        verbose: whether all that is known of a report is told.
    """
    if not first_process():
        return
    title = "" if named else title_of(artifact.reference, variant)
    if artifact.kind == "tokens":
        _show_splits(title, artifact)
    elif artifact.kind == "report":
        from memlm_cli.report_tables import show_report

        show_report(title, artifact, verbose=verbose)
    elif artifact.kind == "matrix":
        _show_matrix(title, artifact.metrics)
    else:
        _show_figures(title, artifact)


def tell_rest(artifact: "Artifact", *, verbose: bool = False) -> None:
    """Name the page of a report; of other kinds there is none."""
    if artifact.kind == "report" and first_process():
        from memlm_cli.report_tables import tell_rest as tell

        tell(artifact, verbose=verbose)


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


def _show_matrix(title: str, metrics: Figures) -> None:
    """The scores after each task, and the figures of all of them, in percent."""
    from stages.charts.stream import FIGURES

    after = ["before", *metrics["tasks"]]
    rows = [
        [row["row"], after[place], *(f"{score:.1%}" for score in scores)]
        for row in metrics["rows"]
        for place, scores in zip(metrics["after"], row["matrix"], strict=True)
    ]
    show_table(title_of(title, metrics["method"]), ("memory", "after", *metrics["tasks"]), rows)
    for row in metrics["rows"]:
        known = [f"{figure_name(name)} {row[name]:.1%}" for name in FIGURES if row[name] is not None]
        say(f"{row['row']}: {', '.join(known)}")


def _validated(model: "Artifact") -> Figures:
    """The split that a model was validated on, and its share of unknown tokens; none where the tokens are gone."""
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


def _show_splits(title: str, artifact: "Artifact") -> None:
    metrics, asked = artifact.metrics, artifact.config.get("vocab_size")
    types, columns = metrics["vocabulary_size"], {name for split in metrics["splits"].values() for name in split}
    fewer = f" (of {asked:,} at most: train gives no more)" if asked and types < asked else ""
    title = title_of(title, metrics["tokenizer"], f"{types:,} types{fewer}")
    show_table(title, *splits_table(metrics["splits"]))
    own = EXAMPLE_WORDS.get(metrics.get("examples", ""), {})
    words = [f"{name}: {means}" for name, means in (SPLIT_WORDS | own).items() if name in columns]
    say("; ".join([*words, *([UNUSED_TYPES] if metrics["tokenizer"] == "bpe" else [])]))


def splits_table(splits: Mapping[str, Figures]) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: a row a split of tokens; rates and shares in percent."""
    columns = [name for name in SPLIT_COLUMNS if any(name in split for split in splits.values())]
    rows = [
        [split, *(_split_value(splits[split].get(name)) for name in columns)] for split in SPLITS if split in splits
    ]
    return ["split", *(SPLIT_COLUMNS[name] for name in columns)], rows


def _split_value(value: Any) -> str:
    return f"{value:.2%}" if isinstance(value, float) else cell_text(value)
