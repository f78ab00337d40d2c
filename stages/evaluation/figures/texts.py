"""Texts that were read before: those that a model learned, rows of datastores, the text of an exact index.

And what of a scored split stands in them: paragraphs, and long matches. The match of a token ends with it. A token
stands in a match of m tokens where one of that length covers it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.figures.ngram import Pieces
from stages.lineage.corpus import array_digests
from stages.lineage.evaluation import datastores_read
from stages.lineage.indexes import EXACT, TEXT
from stages.lineage.rows import DatastoreRows
from stages.lineage.sources import PAIRS, PAIRS_SPLIT
from stages.registry import CODE
from stages.suffixes.matches import SortedContexts
from stages.suffixes.text import LONGEST, Text, ranges, sort_contexts
from stages.text.tokens import TokenSplit, open_split

LEARNED = "train"
HASHES = "paragraph_hashes"
MOST_TOKENS = 10_000_000
"""Maximum number of tokens that are counted, matched, and scored: 10 s and 1 GB for each control at most."""
LENGTHS = (8, 13, 32)
"""Lengths whose shares are reported. 13 tokens are what Brown et al. 2020 (GPT-3), appendix C, call contaminated."""
NEW_BELOW = 13
"""New text stands in no match of this many tokens."""

Digests = frozenset[tuple[str, str]]
"""The bytes of a split's ids, wherever they lie."""


class WholeSplit(NamedTuple):
    """A split whose arrays are opened where they are read: most texts are only compared by their digests."""

    tokens: Artifact
    split: str

    @property
    def arrays(self) -> TokenSplit:
        """Its ids and hashes."""
        return open_split(self.tokens.zarr("tokens.zarr"), self.split)


@dataclass(frozen=True)
class KnownText:
    """All of a split, or rows of it that a datastore has.

    `ids`: digests of the split's ids. `corpus`: reference of its tokens. `tokens`: how many are known.
    `paragraphs`: digests of the hashes of its paragraphs; None if only some are stored.
    """

    ids: Digests
    corpus: str
    split: str
    tokens: int
    paragraphs: Mapping[str, str] | None
    held: WholeSplit | tuple[DatastoreRows, int]
    """A whole split, or a datastore and the number of its source."""
    read_by: tuple[str, ...] = ()
    """Roles of what reads it: `model`, `datastore`, `exact`."""

    def open(self) -> Pieces:
        """The tokens that are known, each with its place in the split."""
        if isinstance(self.held, WholeSplit):
            return Pieces(np.asarray(self.held.arrays.ids[:]))
        rows, source = self.held
        first, end = rows.runs.block(source)
        places = rows.runs.places_of(np.arange(first, end))[1]
        return Pieces.of_places(np.asarray(rows.text.ids[first:end]), places)

    def hashes(self) -> np.ndarray:
        """Hashes of its paragraphs that are stored, uint64 [P]."""
        if isinstance(self.held, WholeSplit):
            return np.asarray(self.held.arrays.paragraph_hashes[:])
        rows, source = self.held
        return rows.paragraph_hashes(source)


def digests_of(tokens: Artifact, split: str) -> Digests:
    """Digests that identify a split."""
    return frozenset(array_digests(tokens, f"{split}/ids").items())


def whole_split(tokens: Artifact, split: str, reader: str = "") -> KnownText:
    """All of a split."""
    return KnownText(
        digests_of(tokens, split),
        tokens.reference,
        split,
        int(tokens.metrics["splits"][split]["tokens"]),
        array_digests(tokens, f"{split}/{HASHES}"),
        WholeSplit(tokens, split),
        (reader,),
    )


def _held(holder: Artifact) -> Iterator[KnownText]:
    """The rows of a datastore, by the split that they are of; all of the text of an exact index, or of pairs."""
    if holder.kind == "tokens":
        yield whole_split(holder, PAIRS_SPLIT, PAIRS)
        return
    if holder.kind == "index":
        yield whole_split(holder.input(TEXT), str(holder.config["split"]), EXACT)
        return
    rows = DatastoreRows(holder)
    for number, source in enumerate(rows.sources):
        first, end = rows.runs.block(number)
        known = frozenset(source.ids.items()), source.tokens.reference, source.split, end - first, source.paragraphs
        yield KnownText(*known, (rows, number), ("datastore",))


def learned_text(model: Artifact) -> KnownText | None:
    """The text that a model was trained on; None of a model that learned elsewhere, whose tokens say nothing of it."""
    tokens: Any = model.input("tokens")
    weights = [role for role, _ in model.manifest.outside_files if not role.startswith(f"{CODE}.")]
    # imported weights learned elsewhere: their tokens are only those that they were imported with
    if weights or LEARNED not in tokens.metrics["splits"]:
        return None
    return whole_split(tokens, LEARNED)


def counted_texts(model: Artifact, holders: Iterable[Artifact]) -> list[KnownText]:
    """The texts of a model, datastores and exact indexes, each once: where two hold parts of one, the larger part."""
    learned = learned_text(model)
    texts = {} if learned is None else {learned.ids: learned}
    for holder in holders:
        for text in _held(holder):
            if text.ids not in texts or texts[text.ids].tokens < text.tokens:
                texts[text.ids] = text
    return list(texts.values())


# Paragraphs


def known_texts(read: Mapping[str, Artifact]) -> list[KnownText]:
    """The texts that the answers may stand in, each once: what the model learned, then what its datastores hold.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
    """
    learned = read["model"].input("tokens")
    texts = [whole_split(learned, LEARNED, "model")] if LEARNED in learned.metrics["splits"] else []
    for datastore, _ in datastores_read(read):
        for held in _held(datastore):
            same = next(
                (n for n, one in enumerate(texts) if held.paragraphs and one.paragraphs == held.paragraphs), None
            )
            if same is None:
                texts.append(held)
            elif "datastore" not in texts[same].read_by:
                texts[same] = replace(texts[same], read_by=("model", "datastore"))
    more = [text for role in (EXACT, PAIRS) if role in read for text in _held(read[role])]
    return texts + [one for one in more if all(text.paragraphs != one.paragraphs for text in texts)]


def repeated_tokens(scored: Artifact, split: str, known: np.ndarray) -> np.ndarray:
    """Whether each token of a split lies in a paragraph whose hash is among those of a known text, bool [T].

    Compares the hashes of whole paragraphs: runs of lines that are not blank or, of longer runs, single lines (see
    `stages.text.documents.mark`).
    """
    arrays: Any = scored.zarr("tokens.zarr")
    repeated = np.isin(np.asarray(arrays[f"{split}/{HASHES}"][:]), known)
    return np.repeat(repeated, np.diff(np.asarray(arrays[f"{split}/paragraph_ends"][:]), prepend=0))


# Matches


@dataclass(frozen=True)
class Matched:
    """Tokens of a split of T that stand in a match of each of LENGTHS, bool [T]; and the texts that were matched."""

    covered: Mapping[int, np.ndarray]
    texts: Sequence[KnownText]

    @property
    def new(self) -> np.ndarray:
        """Whether each token stands in no match of NEW_BELOW tokens, bool [T]."""
        return ~self.covered[NEW_BELOW]

    def figures(self, counted: np.ndarray | slice) -> dict[str, Any]:
        """Shares of the tokens that count, JSON."""
        return {
            "shares": {str(length): float(inside[counted].mean()) for length, inside in self.covered.items()},
            "new_below": NEW_BELOW,
            "texts": [{"corpus": one.corpus, "split": one.split, "tokens": one.tokens} for one in self.texts],
        }


def find_matched(read: Mapping[str, Artifact], split: str) -> Matched | None:
    """Matches of a split in all texts that an evaluation reads, but for itself.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
    Returns: None where there is no such text, or more than MOST_TOKENS tokens of it.
    """
    datastores = [datastore for datastore, _ in datastores_read(read)]
    holders = [*datastores, *(read[role] for role in (EXACT, PAIRS) if role in read)]
    own = digests_of(read["tokens"], split)
    texts = [text for text in counted_texts(read["model"], holders) if text.ids != own]
    scored = open_split(read["tokens"].zarr("tokens.zarr"), split)
    ids, offsets = np.asarray(scored.ids[:]), np.asarray(scored.doc_offsets[:])
    if not texts or max(len(ids), sum(text.tokens for text in texts)) > MOST_TOKENS:
        return None
    vocabulary = int(read["tokens"].metrics["vocabulary_size"])
    matches = np.zeros(len(ids), np.int64)
    for text in texts:
        matches = np.maximum(matches, longest_matches(ids, offsets, *_opened(text), vocabulary))
    return Matched({length: in_match(matches, length) for length in LENGTHS}, texts)


def _opened(text: KnownText) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of a text, and where its parts begin, int64 [D + 1]."""
    pieces = text.open()
    if isinstance(text.held, WholeSplit):
        return pieces.ids, np.asarray(text.held.arrays.doc_offsets[:])
    begins = np.zeros(0, np.int64) if pieces.first is None else np.unique(pieces.first)
    return pieces.ids, np.append(begins, len(pieces.ids))


def longest_matches(
    ids: np.ndarray, offsets: np.ndarray, known: np.ndarray, known_offsets: np.ndarray, vocabulary: int
) -> np.ndarray:
    """Tokens of the longest match that ends with each token of a text, in another text, int64 [T]; LONGEST at most.

    Args:
        ids, offsets: integers [T] and int64 [D + 1], the text that is looked for; matches end where documents begin.
        known, known_offsets: the same of the other text.

    >>> text, whole = np.array([1, 2, 3, 9, 2, 3]), np.array([0, 6])
    >>> longest_matches(text, whole, np.array([2, 3, 1, 2]), np.array([0, 4]), 10).tolist()
    [1, 2, 2, 0, 1, 2]
    """
    asked, held = _inclusive(ids, offsets, vocabulary), _inclusive(known, known_offsets, vocabulary)
    places, longest = np.arange(1, len(ids) + 1), np.zeros(len(ids), np.uint8)
    for part in ranges(len(known)):  # sorted apart, so that memory holds one
        contexts = SortedContexts(held, *sort_contexts(held, part + 1))
        longest = np.maximum(longest, contexts.locate(asked, places).longest)
    return np.minimum(longest, asked.known[places]).astype(np.int64)  # a border that both have is no token


def _inclusive(ids: np.ndarray, offsets: np.ndarray, vocabulary: int) -> Text:
    """A text in which place t + 1 has token t and those before it as its context, at ends of documents, too."""
    begins = np.repeat(offsets[:-1], np.diff(offsets))
    known = np.minimum(np.arange(1, len(ids) + 1) - begins, LONGEST)
    return Text(np.append(ids, 0).astype(np.uint32), np.append(0, known).astype(np.uint8), vocabulary)


def in_match(matches: np.ndarray, length: int) -> np.ndarray:
    """Whether each token stands in a match of this many tokens, bool [T].

    >>> in_match(np.array([0, 1, 2, 1]), 2).tolist()
    [False, True, True, False]
    """
    ends = np.flatnonzero(matches >= length)
    opened = np.bincount(ends - matches[ends] + 1, minlength=len(matches) + 1)
    return np.cumsum(opened - np.bincount(ends + 1, minlength=len(matches) + 1))[:-1] > 0
