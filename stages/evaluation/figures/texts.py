"""Known texts: the training text of a model, rows of datastores, the text of an exact index.

Finds the paragraphs and the long matches that a scored split shares with them. The match of a token
ends with it. A token is in a match of m tokens if any match of that length covers it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.figures.lines import LinedText, LineVocabulary, repeated_lines
from stages.evaluation.figures.ngram import Pieces
from stages.lineage.corpus import array_digests, token_text
from stages.lineage.evaluation import datastores_read
from stages.lineage.rows import DatastoreRows
from stages.registry import CODE
from stages.retrieval.inputs import inputs_in
from stages.suffixes.matches import SortedContexts
from stages.suffixes.text import LONGEST, Text, ranges, sort_contexts
from stages.text.tokens import TokenSplit, open_split

LEARNED = "train"
HASHES = "paragraph_hashes"
MOST_TOKENS = 10_000_000
"""Maximum number of tokens that are counted, matched and scored: each control then takes at most 10
s and 1 GB.
"""
LENGTHS = (8, 13, 32)
"""Lengths of matches, in tokens, whose shares are reported. Brown et al. 2020 (GPT-3), appendix C,
use 13.
"""
NEW_BELOW = 13
"""Length of match, in tokens, from which text is no longer new."""

Digests = frozenset[tuple[str, str]]
"""Digests of the files with a split's ids: equal for equal bytes, in any artifact."""


class WholeSplit(NamedTuple):
    """A split whose arrays are opened only when read: most texts are compared by their digests
    alone.
    """

    tokens: Artifact
    split: str

    @property
    def arrays(self) -> TokenSplit:
        """Ids, document offsets and paragraph hashes of the split."""
        return open_split(self.tokens.zarr("tokens.zarr"), self.split)


@dataclass(frozen=True)
class KnownText:
    """A whole split, or the rows of it in a datastore.

    `ids`: digests of the split's ids. `corpus`: reference of its tokens. `tokens`: number of known
    tokens. `paragraphs`: digests of the hashes of its paragraphs; None if only some paragraphs are
    stored.
    """

    ids: Digests
    corpus: str
    split: str
    tokens: int
    paragraphs: Mapping[str, str] | None
    held: WholeSplit | tuple[DatastoreRows, int]
    """A whole split, or a datastore and the number of its source."""
    read_by: tuple[str, ...] = ()
    """Roles of the artifacts that read it: `model`, `datastore`, or that of a source's input."""

    def open(self) -> Pieces:
        """The known tokens, with their positions in the split."""
        if isinstance(self.held, WholeSplit):
            return Pieces(np.asarray(self.held.arrays.ids[:]))
        rows, source = self.held
        first, end = rows.runs.block(source)
        places = rows.runs.places_of(np.arange(first, end))[1]
        return Pieces.of_places(np.asarray(rows.text.ids[first:end]), places)

    def hashes(self) -> np.ndarray:
        """Hashes of the stored paragraphs, uint64 [P]."""
        if isinstance(self.held, WholeSplit):
            return np.asarray(self.held.arrays.paragraph_hashes[:])
        rows, source = self.held
        return rows.paragraph_hashes(source)

    def lined(self) -> LinedText:
        """The tokens that `hashes` is of, with the ends of their documents and paragraphs."""
        if isinstance(self.held, WholeSplit):
            return lined_split(self.held.arrays)
        rows, source = self.held
        return lined_split(rows.text) if rows.has_split_text else lined_rows(rows, source)


def lined_split(split: TokenSplit) -> LinedText:
    """All tokens of a split."""
    return LinedText(
        split.ids, np.asarray(split.doc_offsets[1:]), np.asarray(split.paragraph_ends[:])
    )


def lined_rows(rows: DatastoreRows, source: int) -> LinedText:
    """The rows of a source, in a datastore with a text of its own."""
    start, stop = rows.runs.block(source)
    ends, _ = rows.paragraphs(start, stop)
    documents = rows.doc_offsets
    inside = documents[(documents > start) & (documents <= stop)]
    return LinedText(np.asarray(rows.text.ids[start:stop]), inside - start, ends - start)


def digests_of(tokens: Artifact, split: str) -> Digests:
    """Digests that identify a split."""
    return frozenset(array_digests(tokens, f"{split}/ids").items())


def whole_split(tokens: Artifact, split: str, reader: str = "") -> KnownText:
    """A whole split as a known text, read by the role `reader`."""
    return KnownText(
        digests_of(tokens, split),
        tokens.reference,
        split,
        int(tokens.metrics["splits"][split]["tokens"]),
        array_digests(tokens, f"{split}/{HASHES}"),
        WholeSplit(tokens, split),
        (reader,),
    )


def datastore_texts(datastore: Artifact) -> Iterator[KnownText]:
    """The rows of a datastore, a text for each source split."""
    rows = DatastoreRows(datastore)
    for number, source in enumerate(rows.sources):
        first, end = rows.runs.block(number)
        yield KnownText(
            frozenset(source.ids.items()),
            source.tokens.reference,
            source.split,
            end - first,
            source.paragraphs,
            (rows, number),
            ("datastore",),
        )


def input_texts(read: Mapping[str, Artifact]) -> list[KnownText]:
    """The whole texts that other inputs of sources hold."""
    texts = []
    for memory, artifact in inputs_in(read):
        text = memory.text(artifact)
        if text is not None:
            texts.append(whole_split(text.tokens, text.split, memory.role))
    return texts


def learned_text(model: Artifact) -> KnownText | None:
    """The text that a model was trained on; None for a model trained elsewhere, whose training text
    is not known.
    """
    tokens: Any = model.input("tokens")
    weights = [role for role, _ in model.manifest.outside_files if not role.startswith(f"{CODE}.")]
    # imported weights were trained elsewhere: their tokens are not their training text
    if weights or LEARNED not in tokens.metrics["splits"]:
        return None
    return whole_split(tokens, LEARNED)


def counted_texts(model: Artifact, memories: Iterable[KnownText]) -> list[KnownText]:
    """The texts of a model and of memories, each once; if two hold parts of a text, the larger
    part.
    """
    learned = learned_text(model)
    texts = {} if learned is None else {learned.ids: learned}
    for text in memories:
        if text.ids not in texts or texts[text.ids].tokens < text.tokens:
            texts[text.ids] = text
    return list(texts.values())


# Paragraphs


def known_texts(read: Mapping[str, Artifact]) -> list[KnownText]:
    """The texts that may contain the answers, each once: the training text, then the texts of
    datastores and indexes.

    Args:
        read: artifacts by role, as in `stages.lineage.evaluation`.
    """
    learned = read["model"].input("tokens")
    texts = [whole_split(learned, LEARNED, "model")] if LEARNED in learned.metrics["splits"] else []
    for datastore, _ in datastores_read(read):
        for held in datastore_texts(datastore):
            same = next(
                (
                    n
                    for n, one in enumerate(texts)
                    if held.paragraphs and one.paragraphs == held.paragraphs
                ),
                None,
            )
            if same is None:
                texts.append(held)
            elif "datastore" not in texts[same].read_by:
                texts[same] = replace(texts[same], read_by=("model", "datastore"))
    return texts + [
        other
        for other in input_texts(read)
        if all(text.paragraphs != other.paragraphs for text in texts)
    ]


def repeated_tokens(scored: Artifact, split: str, texts: Sequence[KnownText]) -> list[np.ndarray]:
    """Whether each token of a split is in a paragraph of a known text, bool [T] for each text.

    A paragraph is a run of lines that are not blank; each line of a long run is one
    (`stages.text.documents.mark`). Where one side has lines, the other is read by lines, too.
    """
    if not texts:
        return []
    arrays = open_split(scored.zarr("tokens.zarr"), split)
    vocabulary = LineVocabulary(token_text(scored), scored.metrics.get("unk_id"))
    repeated = []
    for text in texts:
        inside = in_paragraphs(arrays, text.hashes())
        lines = repeated_lines(lined_split(arrays), text.lined(), vocabulary)
        repeated.append(inside if lines is None else inside | lines)
    return repeated


def in_paragraphs(split: TokenSplit, known: np.ndarray) -> np.ndarray:
    """Whether each token of a split is in a paragraph whose hash is in `known`, bool [T]."""
    repeated = np.isin(np.asarray(split.paragraph_hashes[:]), known)
    return np.repeat(repeated, np.diff(np.asarray(split.paragraph_ends[:]), prepend=0))


# Matches


@dataclass(frozen=True)
class Matched:
    """Whether each of T tokens is in a match, bool [T], for each of LENGTHS; and the texts that
    were matched.
    """

    covered: Mapping[int, np.ndarray]
    texts: Sequence[KnownText]

    @property
    def new(self) -> np.ndarray:
        """Whether each token is in no match of NEW_BELOW tokens, bool [T]."""
        return ~self.covered[NEW_BELOW]

    def figures(self, counted: np.ndarray | slice) -> dict[str, Any]:
        """Shares of the `counted` tokens in matches, JSON."""
        return {
            "shares": {
                str(length): float(inside[counted].mean())
                for length, inside in self.covered.items()
            },
            "new_below": NEW_BELOW,
            "texts": [
                {"corpus": one.corpus, "split": one.split, "tokens": one.tokens}
                for one in self.texts
            ],
        }


def find_matched(read: Mapping[str, Artifact], split: str) -> Matched | None:
    """Matches of a split in all texts that an evaluation reads, except the split itself.

    Args:
        read: artifacts by role, as in `stages.lineage.evaluation`.
    Returns: None if there is no other text, or if the split or the texts have more than MOST_TOKENS
    tokens.
    """
    memories: list[KnownText] = []
    for datastore, _ in datastores_read(read):
        memories += datastore_texts(datastore)
    memories += input_texts(read)
    own = digests_of(read["tokens"], split)
    texts = [text for text in counted_texts(read["model"], memories) if text.ids != own]
    scored = open_split(read["tokens"].zarr("tokens.zarr"), split)
    ids = np.asarray(scored.ids[:])
    offsets = np.asarray(scored.doc_offsets[:])
    if not texts or max(len(ids), sum(text.tokens for text in texts)) > MOST_TOKENS:
        return None
    vocabulary = int(read["tokens"].metrics["vocabulary_size"])
    matches = np.zeros(len(ids), np.int64)
    for text in texts:
        matches = np.maximum(matches, longest_matches(ids, offsets, *_opened(text), vocabulary))
    return Matched({length: in_match(matches, length) for length in LENGTHS}, texts)


def _opened(text: KnownText) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of a text, and the offsets of its documents or runs, int64 [D + 1]."""
    pieces = text.open()
    if isinstance(text.held, WholeSplit):
        return pieces.ids, np.asarray(text.held.arrays.doc_offsets[:])
    begins = np.zeros(0, np.int64) if pieces.first is None else np.unique(pieces.first)
    return pieces.ids, np.append(begins, len(pieces.ids))


def longest_matches(
    ids: np.ndarray,
    offsets: np.ndarray,
    known: np.ndarray,
    known_offsets: np.ndarray,
    vocabulary: int,
) -> np.ndarray:
    """Length in tokens of the longest match that ends with each token, in a known text, int64 [T];
    LONGEST at most.

    Args:
        ids, offsets: integers [T] and int64 [D + 1], the text to match; no match crosses a document
        boundary.
        known, known_offsets: the same for the known text.

    >>> text, whole = np.array([1, 2, 3, 9, 2, 3]), np.array([0, 6])
    >>> longest_matches(text, whole, np.array([2, 3, 1, 2]), np.array([0, 4]), 10).tolist()
    [1, 2, 2, 0, 1, 2]
    """
    asked = _inclusive(ids, offsets, vocabulary)
    held = _inclusive(known, known_offsets, vocabulary)
    places = np.arange(1, len(ids) + 1)
    longest = np.zeros(len(ids), np.uint8)
    for part in ranges(len(known)):  # sorted separately, so that only one range is in memory
        contexts = SortedContexts(held, *sort_contexts(held, part + 1))
        longest = np.maximum(longest, contexts.locate(asked, places).longest)
    return np.minimum(longest, asked.lengths[places]).astype(
        np.int64
    )  # a document boundary in both is no token


def _inclusive(ids: np.ndarray, offsets: np.ndarray, vocabulary: int) -> Text:
    """A text whose context at place t + 1 ends with token t, also at the ends of documents."""
    begins = np.repeat(offsets[:-1], np.diff(offsets))
    known = np.minimum(np.arange(1, len(ids) + 1) - begins, LONGEST)
    return Text(
        np.append(ids, 0).astype(np.uint32), np.append(0, known).astype(np.uint8), vocabulary
    )


def in_match(matches: np.ndarray, length: int) -> np.ndarray:
    """Whether each token is in a match of at least `length` tokens, bool [T].

    >>> in_match(np.array([0, 1, 2, 1]), 2).tolist()
    [False, True, True, False]
    """
    ends = np.flatnonzero(matches >= length)
    opened = np.bincount(ends - matches[ends] + 1, minlength=len(matches) + 1)
    return np.cumsum(opened - np.bincount(ends + 1, minlength=len(matches) + 1))[:-1] > 0
