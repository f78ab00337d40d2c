"""Display of tokens on a terminal: a row for each split."""

from collections.abc import Iterator, Mapping

from memlm_cli.results.view import Figures, ResultTable, View
from memlm_cli.tables import cell_text, title_of
from stages.artifacts.artifact import Artifact
from stages.text.tokens import SPLITS

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


class TokensView(View):
    """The vocabulary and the splits, with the meaning of columns."""

    def parts(
        self, artifact: Artifact, title: str, *, verbose: bool
    ) -> Iterator[ResultTable | str]:
        metrics = artifact.metrics
        title = title_of(title, metrics["tokenizer"], _vocabulary(artifact))
        yield ResultTable(title, *splits_table(metrics["splits"]))
        yield _meanings(metrics)

    def lines(self, artifact: Artifact) -> Iterator[tuple[str, str]]:
        splits = artifact.metrics["splits"]
        for split in SPLITS:
            if (figures := splits.get(split)) is not None:
                yield split, f"{figures['tokens']:,} tokens; documents: {figures['documents']:,}"
        yield from super().lines(artifact)


def _vocabulary(tokens: Artifact) -> str:
    types = tokens.metrics["vocabulary_size"]
    limit = tokens.config.get("vocab_size")
    if limit and types < limit:
        return f"{types:,} types (of {limit:,} at most: train gives no more)"
    return f"{types:,} types"


def _meanings(metrics: Figures) -> str:
    """Meanings of the columns that these splits have."""
    columns = {name for split in metrics["splits"].values() for name in split}
    meanings = SPLIT_WORDS | EXAMPLE_WORDS.get(metrics.get("examples", ""), {})
    words = [f"{name}: {means}" for name, means in meanings.items() if name in columns]
    if metrics["tokenizer"] == "bpe":
        words.append(UNUSED_TYPES)
    return "; ".join(words)


def splits_table(splits: Mapping[str, Figures]) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: one row per split of tokens; rates and shares in percent."""
    names = set().union(*splits.values())
    columns = [name for name in SPLIT_COLUMNS if name in names]
    headers = ["split", *(SPLIT_COLUMNS[name] for name in columns)]
    rows = []
    for split in SPLITS:
        if split in splits:
            row = [split]
            for name in columns:
                value = splits[split].get(name)
                row.append(f"{value:.2%}" if isinstance(value, float) else cell_text(value))
            rows.append(row)
    return headers, rows
