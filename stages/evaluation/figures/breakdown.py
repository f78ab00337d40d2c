"""Breakdowns of a scored split, found before any token is scored: repeated paragraphs, ends of documents, frequency."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.figures.frequency import Frequencies, find_frequencies
from stages.evaluation.figures.last_word import LastWords
from stages.evaluation.figures.matched import Matched, find_matched
from stages.lineage.corpus import array_digests, token_text
from stages.lineage.evaluation import datastores_read
from stages.lineage.exact import EXACT, TEXT
from stages.lineage.pairs import PAIRS, SPLIT
from stages.lineage.rows import DatastoreRows
from stages.retrieval.rows import MemoryRow
from stages.text.tokens import open_split

ACCURACY_AT = (1, 8, 64, 1024)
"""Numbers of neighbours, beside all that are read, for which retrieval accuracy is reported."""


@dataclass(frozen=True)
class Accuracy:
    """Retrieval accuracy is that of memory row `row`, at each number of neighbours in `at`; empty: of none."""

    row: int
    at: tuple[int, ...]


class Repeated(NamedTuple):
    """A text that is known, and how many counted tokens stand in it."""

    text: "KnownText"
    tokens: int


@dataclass(frozen=True)
class Breakdown:
    """Which tokens of a split of T are reported apart.

    `last_words`: those that alone count, and the passages that they belong to; None: all count.
    `parts`: bool [T] by name: `outside` (in no paragraph of a text that is known), `new` (in no long match with one),
    `ends` (of documents); those that are not known are left out, and ends where last words alone count.
    `unknown_id`: of `<unk>`, whose tokens are the part `unknown`; None: the tokenizer has none.
    `repeated`: the texts that are known, the model's and the datastores'. `matched`: what matches were found of.
    `frequencies`: by how often their type stands in a text; None if that is not known.
    `accuracy`: the row, and the numbers of neighbours, of which retrieval accuracy is reported.
    """

    last_words: LastWords | None
    parts: Mapping[str, np.ndarray]
    repeated: list[Repeated]
    frequencies: Frequencies | None
    accuracy: Accuracy
    unknown_id: int | None = None
    matched: Matched | None = None

    @property
    def outside(self) -> np.ndarray | None:
        """Tokens in no paragraph that was read before, bool [T]."""
        return self.parts.get("outside")


def find_breakdown(
    read: Mapping[str, Artifact],
    split: str,
    counted_in: str,
    rows: Sequence[MemoryRow],
    last_words: Mapping[str, LastWords] | None,
) -> Breakdown:
    """Find the breakdowns of the scored split.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
        counted_in: where the frequency of tokens is counted: `train` or `split`.
        rows: those of the evaluator.
        last_words: of each split, the tokens that alone count.
    """
    counted = None if last_words is None else last_words[split]
    texts = known_texts(read)
    inside = [repeated_tokens(read["tokens"], split, text.hashes()) for text in texts]
    matched = find_matched(read, split)
    parts = {
        "outside": ~np.logical_or.reduce(inside) if inside else None,
        "new": None if matched is None else matched.new,
        "ends": end_tokens(read["tokens"], split) if counted is None else None,
    }
    return Breakdown(
        counted,
        {name: part for name, part in parts.items() if part is not None},
        [Repeated(text, _count(tokens, counted)) for text, tokens in zip(texts, inside, strict=True)],
        find_frequencies(counted_in, read, split),
        find_accuracy(rows),
        read["tokens"].metrics.get("unk_id"),
        matched,
    )


def _count(tokens: np.ndarray, counted: LastWords | None) -> int:
    """How many of some tokens, bool [T], count."""
    return int(tokens.sum() if counted is None else tokens[counted.scored(0, len(tokens))].sum())


def find_accuracy(rows: Sequence[MemoryRow]) -> Accuracy:
    """The first row whose first reading looks into a datastore, and the numbers of neighbours reported for it.

    None of a row that leaves searches out: where none is made no neighbour can be right.
    """
    for number, row in enumerate(rows):
        k = row.sources[0].needs.neighbors
        if k and row.searched == 1:
            return Accuracy(number, tuple(sorted({*(n for n in ACCURACY_AT if n < k), k})))
    return Accuracy(0, ())


HASHES = "paragraph_hashes"


@dataclass(frozen=True)
class KnownText:
    """A split that a model learned, rows of a datastore are of, or an index matches: `read_by` says which.

    `corpus`: reference of its tokens; `digests`: what all its paragraphs are known by, None if only some are stored;
    `hashes`: reads those that are, uint64 [P].
    """

    corpus: str
    split: str
    digests: Mapping[str, str] | None
    hashes: Callable[[], np.ndarray]
    read_by: tuple[str, ...]


def known_texts(read: Mapping[str, Artifact]) -> list[KnownText]:
    """The texts that the answers may stand in, each once: what the model learned, then what its datastores hold.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
    """
    learned = read["model"].input("tokens")
    texts = [_whole(learned, "train", "model")] if "train" in learned.metrics["splits"] else []
    for datastore, _ in datastores_read(read):
        for held in _held(datastore):
            same = next((n for n, text in enumerate(texts) if held.digests and text.digests == held.digests), None)
            if same is None:
                texts.append(held)
            elif "datastore" not in texts[same].read_by:
                texts[same] = replace(texts[same], read_by=("model", "datastore"))
    more = []
    if EXACT in read:
        more.append(_whole(read[EXACT].input(TEXT), str(read[EXACT].config["split"]), EXACT))
    if PAIRS in read:
        more.append(_whole(read[PAIRS], SPLIT, PAIRS))
    return texts + [one for one in more if all(text.digests != one.digests for text in texts)]


def _whole(tokens: Artifact, split: str, reader: str) -> KnownText:
    digests = array_digests(tokens, f"{split}/{HASHES}")
    return KnownText(tokens.reference, split, digests, partial(_read, tokens, split, HASHES), (reader,))


def _held(datastore: Artifact) -> Iterator[KnownText]:
    """The text of each split that rows of a datastore are of."""
    rows = DatastoreRows(datastore)
    for number, source in enumerate(rows.sources):
        hashes = partial(rows.paragraph_hashes, number)
        yield KnownText(source.tokens.reference, source.split, source.paragraphs, hashes, ("datastore",))


def repeated_tokens(scored: Artifact, split: str, known: np.ndarray) -> np.ndarray:
    """Whether each token of a split lies in a paragraph whose hash is among those of a known text, bool [T].

    Compares the hashes of whole paragraphs: runs of lines that are not blank or, of longer runs, single lines (see
    `stages.text.documents.mark`).
    """
    repeated = np.isin(_read(scored, split, HASHES), known)
    ends = _read(scored, split, "paragraph_ends")
    return np.repeat(repeated, np.diff(ends, prepend=0))


def _read(tokens: Artifact, split: str, name: str) -> np.ndarray:
    array: Any = tokens.zarr("tokens.zarr")[f"{split}/{name}"]
    return np.asarray(array[:])


def end_tokens(tokens: Artifact, split: str) -> np.ndarray | None:
    """Whether each of a split's T tokens ends a document, bool [T]; None where documents have no `<eos>` of their own.

    A token that is white space with a line break counts where `<eos>` follows it: where lines are documents there is
    one in each, and `<eos>` is certain behind it.
    """
    if tokens.metrics["eos_after"] != "document":
        return None
    opened = open_split(tokens.zarr("tokens.zarr"), split)
    ids, offsets = np.asarray(opened.ids[:]), np.asarray(opened.doc_offsets[:])
    last = offsets[1:] - 1
    last = last[ids[last] == tokens.metrics["eos_id"]]
    before = last[~np.isin(last, offsets[:-1])] - 1  # a document of <eos> alone has none
    text = token_text(tokens)
    breaks = [id for id in np.unique(ids[before]).tolist() if _is_line_end(text.label(id))]
    ends = np.zeros(len(ids), bool)
    ends[last] = True
    ends[before[np.isin(ids[before], breaks)]] = True
    return ends


def _is_line_end(text: str) -> bool:
    return "\n" in text and text.isspace()
