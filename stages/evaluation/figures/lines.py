"""Lines that a scored text shares with a known one, where either was cut into lines.

A long run of lines has a hash for each of its lines (`stages.text.documents.mark`), a short one a
hash for the whole. Neither equals the other, although the text is the same. Documents that are
single lines (`--documents line`, sentences in JSON lines) are cut likewise. So wherever one text
was cut, the lines of the other are compared too. They are found in token ids, which both texts
have in the same vocabulary.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from stages.text.excerpt import TokenText

TOKENS_AT_ONCE = 1 << 22
"""Number of tokens in memory at a time; a longer paragraph is read whole."""
BLANK = -1
"""Number of a token that is white space."""
UNKNOWN = -2
"""Number of `<unk>`."""


class LineVocabulary:
    """Line breaks and text of each token of a vocabulary.

    `breaks`: number of line breaks that end the token's text, int64 [V].
    `words`: number of the token's text without white space around it, int64 [V]; BLANK if nothing
    is left, UNKNOWN for `<unk>`. A tokenizer may merge a full stop with the break after it: only then two tokens have
    one number.
    """

    def __init__(self, text: TokenText, unk_id: int | None) -> None:
        self.breaks = np.zeros(text.vocabulary_size, np.int64)
        self.words = np.full(text.vocabulary_size, BLANK)
        numbers: dict[str, int] = {}
        for id in range(text.vocabulary_size):
            label = text.label(id)
            # <eos> ends a line or a document, and is no part of it.
            if id == text.eos:
                self.breaks[id] = int(text.eos_is_newline)
                continue
            word = label.strip()
            self.breaks[id] = label[len(label.rstrip()) :].count("\n")
            if id == unk_id:
                self.words[id] = UNKNOWN
            elif word:
                self.words[id] = numbers.setdefault(word, len(numbers))


@dataclass(frozen=True)
class LinedText:
    """Tokens of a text, with the ends of its documents and paragraphs.

    `ids`: integers [T], a NumPy or Zarr array. `document_ends`, `paragraph_ends`: int64, the token
    at which each ends, exclusive.
    """

    ids: Any
    document_ends: np.ndarray
    paragraph_ends: np.ndarray

    def lines(self, vocabulary: LineVocabulary) -> Iterator["Lines"]:
        """The lines of the text, in ranges of whole paragraphs."""
        # A paragraph may have no tokens.
        ends = np.setdiff1d(self.paragraph_ends, [0])
        ends_document = np.isin(ends, self.document_ends)
        whole = ends_document & np.append(True, ends_document[:-1])
        # A run that was cut may continue in the next range.
        cut_before = False
        first = 0
        begin = 0
        while first < len(ends):
            last = max(int(np.searchsorted(ends, begin + TOKENS_AT_ONCE, "right")), first + 1)
            ids = np.asarray(self.ids[begin : int(ends[last - 1])])
            lines = Lines.of(
                ids,
                ends[first:last] - begin,
                ends_document[first:last],
                whole[first:last],
                cut_before,
                vocabulary,
            )
            yield lines
            cut_before = lines.runs_on
            first = last
            begin = int(ends[last - 1])


@dataclass(frozen=True)
class Lines:
    """L lines of T tokens; blank lines are lines of their own.

    `words`: number of each token's text, int64 [T]. `begins`: first token of each line, int64 [L].
    `blank`: whether a line is blank, bool [L]. `opens`: whether it is the first of its paragraph,
    bool [L]. `compared`: whether more of its words are known than unknown, bool [L], since lines of
    `<unk>` are equal though their texts differ. `cut`: whether its paragraph is a line of a longer
    run, or the only line of a document, bool [L]. `runs_on`: whether that run continues behind the
    last line.
    """

    words: np.ndarray
    begins: np.ndarray
    blank: np.ndarray
    compared: np.ndarray
    opens: np.ndarray
    cut: np.ndarray
    runs_on: bool

    @classmethod
    def of(
        cls,
        ids: np.ndarray,
        ends: np.ndarray,
        ends_document: np.ndarray,
        whole: np.ndarray,
        cut_before: bool,
        vocabulary: LineVocabulary,
    ) -> Self:
        """Lines of the tokens of whole paragraphs.

        Args:
            ids: integers [T].
            ends: token at which each paragraph ends, exclusive, int64 [P].
            ends_document: whether each paragraph is the last of its document, bool [P].
            whole: whether it is a whole document, bool [P].
            cut_before: whether the first paragraph continues a run that was cut.
            vocabulary: line breaks and text of each id.
        """
        words = vocabulary.words[ids]
        breaks = vocabulary.breaks[ids]
        is_first = np.append(True, breaks[:-1] > 0)
        is_first[ends[:-1]] = True
        begins = np.flatnonzero(is_first)
        blank = ~np.logical_or.reduceat(words != BLANK, begins)
        num_words = np.add.reduceat((words >= 0).astype(np.int64), begins)
        num_unknown = np.add.reduceat((words == UNKNOWN).astype(np.int64), begins)
        compared = num_words > num_unknown
        opens = np.isin(begins, np.append(0, ends[:-1]))

        # A paragraph ends at a blank line. If one ends at a single break and its document goes on,
        # its run was cut into lines; the next paragraph is of the same run.
        last_line = np.searchsorted(begins, ends) - 1
        joins = ~ends_document & ~blank[last_line] & (breaks[ends - 1] == 1)
        num_lines = np.add.reduceat((~blank).astype(np.int64), np.flatnonzero(opens))
        cut = joins | np.append(cut_before, joins[:-1]) | (whole & (num_lines == 1))
        cut_lines = cut[np.cumsum(opens) - 1]
        return cls(words, begins, blank, compared, opens, cut_lines, bool(joins[-1]))

    @property
    def _ends(self) -> np.ndarray:
        return np.append(self.begins[1:], len(self.words))

    def digests(self, selected: np.ndarray) -> np.ndarray:
        """BLAKE2b-64 of the words of the selected lines: bool [L] -> uint64 [n]."""
        digests = []
        spans = zip(self.begins[selected].tolist(), self._ends[selected].tolist(), strict=True)
        for begin, end in spans:
            words = self.words[begin:end]
            digest = hashlib.blake2b(words[words != BLANK].tobytes(), digest_size=8)
            digests.append(int.from_bytes(digest.digest(), "little"))
        return np.array(digests, np.uint64)

    def of_tokens(self, lines: np.ndarray) -> np.ndarray:
        """Values of lines, bool [L], as values of their tokens, bool [T].

        A blank line has the value of the line before it in its paragraph.
        """
        number = np.arange(len(self.begins))
        source = np.maximum.accumulate(np.where(self.blank & ~self.opens, 0, number))
        return np.repeat(lines[source], self._ends - self.begins)


def repeated_lines(
    scored: LinedText, source: LinedText, vocabulary: LineVocabulary
) -> np.ndarray | None:
    """Whether each token of a scored text is in a line of a known text, where either was cut into
    lines, bool [T].

    Lines of whole paragraphs are not compared with lines of whole paragraphs.
    Returns: None if neither text was cut.
    """
    any_cut = any(bool(lines.cut.any()) for lines in scored.lines(vocabulary))
    of_runs = [np.zeros(0, np.uint64)]
    of_paragraphs = [np.zeros(0, np.uint64)]
    for lines in source.lines(vocabulary):
        of_runs.append(lines.digests(lines.cut & lines.compared))
        if any_cut:
            of_paragraphs.append(lines.digests(~lines.cut & lines.compared))
    known_runs = np.unique(np.concatenate(of_runs))
    known_paragraphs = np.unique(np.concatenate(of_paragraphs))
    if not any_cut and not len(known_runs):
        return None

    repeated = [np.zeros(0, bool)]
    for lines in scored.lines(vocabulary):
        digests = lines.digests(lines.compared)
        in_paragraph = lines.cut[lines.compared] & np.isin(digests, known_paragraphs)
        verdict = np.zeros(len(lines.begins), bool)
        verdict[lines.compared] = in_paragraph | np.isin(digests, known_runs)
        repeated.append(lines.of_tokens(verdict))
    return np.concatenate(repeated)
