"""Known texts: the training text of a model, rows of datastores, the text of an exact index.

Finds the paragraphs and the long matches that a scored split shares with them. The match of a token
ends with it. A token is in a match of m tokens if any match of that length covers it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

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


class StoredText(Protocol):
    """A holder of the tokens of a text."""

    def pieces(self) -> Pieces:
        """The known tokens, with their positions in the split."""

    def runs(self) -> tuple[np.ndarray, np.ndarray]:
        """The tokens, and the offsets of its documents or runs, int64 [D + 1]."""

    def hashes(self) -> np.ndarray:
        """Hashes of the stored paragraphs, uint64 [P]."""

    def lined(self) -> LinedText:
        """The tokens that `hashes` is of, with the ends of their documents and paragraphs."""


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

    def pieces(self) -> Pieces:
        return Pieces(np.asarray(self.arrays.ids[:]))

    def runs(self) -> tuple[np.ndarray, np.ndarray]:
        return self.pieces().ids, np.asarray(self.arrays.doc_offsets[:])

    def hashes(self) -> np.ndarray:
        return np.asarray(self.arrays.paragraph_hashes[:])

    def lined(self) -> LinedText:
        return lined_split(self.arrays)


class SourceRows(NamedTuple):
    """The rows of a datastore that are of one source split, by the number of the source."""

    rows: DatastoreRows
    source: int

    def pieces(self) -> Pieces:
        first, end = self.rows.runs.block(self.source)
        places = self.rows.runs.places_of(np.arange(first, end))[1]
        return Pieces.of_places(np.asarray(self.rows.text.ids[first:end]), places)

    def runs(self) -> tuple[np.ndarray, np.ndarray]:
        pieces = self.pieces()
        begins = np.zeros(0, np.int64) if pieces.first is None else np.unique(pieces.first)
        return pieces.ids, np.append(begins, len(pieces.ids))

    def hashes(self) -> np.ndarray:
        return self.rows.paragraph_hashes(self.source)

    def lined(self) -> LinedText:
        if self.rows.has_split_text:
            return lined_split(self.rows.text)
        return lined_rows(self.rows, self.source)


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
    content: StoredText
    """The holder of its tokens."""
    read_by: tuple[str, ...] = ()
    """Roles of the artifacts that read it: `model`, `datastore`, or that of a source's input."""


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
            SourceRows(rows, number),
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
        for text in datastore_texts(datastore):
            paragraphs = [other.paragraphs for other in texts]
            # without digests a text is like no other
            if not text.paragraphs or text.paragraphs not in paragraphs:
                texts.append(text)
                continue
            same = paragraphs.index(text.paragraphs)
            if "datastore" not in texts[same].read_by:
                texts[same] = replace(texts[same], read_by=("model", "datastore"))

    paragraphs = [text.paragraphs for text in texts]
    return texts + [other for other in input_texts(read) if other.paragraphs not in paragraphs]


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
        inside = in_paragraphs(arrays, text.content.hashes())
        lines = repeated_lines(lined_split(arrays), text.content.lined(), vocabulary)
        repeated.append(inside if lines is None else inside | lines)
    return repeated


def in_paragraphs(split: TokenSplit, hashes: np.ndarray) -> np.ndarray:
    """Whether each token of a split is in a paragraph whose hash is in `hashes`, bool [T]."""
    repeated = np.isin(np.asarray(split.paragraph_hashes[:]), hashes)
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
        shares = {}
        for length, is_inside in self.covered.items():
            shares[str(length)] = float(is_inside[counted].mean())
        texts = []
        for text in self.texts:
            texts.append({"corpus": text.corpus, "split": text.split, "tokens": text.tokens})
        return {"shares": shares, "new_below": NEW_BELOW, "texts": texts}


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
    split_digests = digests_of(read["tokens"], split)
    texts = [text for text in counted_texts(read["model"], memories) if text.ids != split_digests]
    scored = open_split(read["tokens"].zarr("tokens.zarr"), split)
    ids = np.asarray(scored.ids[:])
    offsets = np.asarray(scored.doc_offsets[:])
    if not texts or max(len(ids), sum(text.tokens for text in texts)) > MOST_TOKENS:
        return None
    vocabulary = int(read["tokens"].metrics["vocabulary_size"])
    matches = np.zeros(len(ids), np.int64)
    for text in texts:
        matches = np.maximum(
            matches, longest_matches(ids, offsets, *text.content.runs(), vocabulary)
        )
    return Matched({length: in_match(matches, length) for length in LENGTHS}, texts)


def longest_matches(
    ids: np.ndarray,
    offsets: np.ndarray,
    known_ids: np.ndarray,
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
    queries = _inclusive(ids, offsets, vocabulary)
    text = _inclusive(known_ids, known_offsets, vocabulary)
    places = np.arange(1, len(ids) + 1)
    longest = np.zeros(len(ids), np.uint8)
    # ranges are sorted separately, so that only one is in memory
    for part in ranges(len(known_ids)):
        contexts = SortedContexts(text, *sort_contexts(text, part + 1))
        longest = np.maximum(longest, contexts.locate(queries, places).longest)
    # a document boundary in both is no token
    return np.minimum(longest, queries.lengths[places]).astype(np.int64)


def _inclusive(ids: np.ndarray, offsets: np.ndarray, vocabulary: int) -> Text:
    """A text whose context at place t + 1 ends with token t, also at the ends of documents."""
    begins = np.repeat(offsets[:-1], np.diff(offsets))
    lengths = np.minimum(np.arange(1, len(ids) + 1) - begins, LONGEST)
    return Text(
        np.append(ids, 0).astype(np.uint32), np.append(0, lengths).astype(np.uint8), vocabulary
    )


def in_match(matches: np.ndarray, length: int) -> np.ndarray:
    """Whether each token is in a match of at least `length` tokens, bool [T].

    >>> in_match(np.array([0, 1, 2, 1]), 2).tolist()
    [False, True, True, False]
    """
    ends = np.flatnonzero(matches >= length)
    opened = np.bincount(ends - matches[ends] + 1, minlength=len(matches) + 1)
    return np.cumsum(opened - np.bincount(ends + 1, minlength=len(matches) + 1))[:-1] > 0
