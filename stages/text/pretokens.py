"""Byte-level BPE by distinct words: text is cut as the library's pre-tokenizer does, and each word is encoded once.

The library takes several times as long, since it follows each byte of a text through every step, the same words anew.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING

import numpy as np

from stages.text.vocabulary import lower

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_WORDS = 2**17
"""Distinct words whose ids are held, about 25 MB."""
_CLASS_OF_NEIGHBOR = {"a": "letter", "1": "number", "!": "sign"}


class WordEncoder:
    """Encodes lines with a tokenizer whose pre-tokenizer is GPT-2's, applied line by line."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._cutter = PreTokenCutter()
        self._forget()

    def _forget(self) -> None:
        self._places: defaultdict[str, int] = defaultdict(count().__next__)
        self._ids = np.zeros(0, np.int64)
        self._ends = np.zeros(1, np.int64)

    def lines(self, texts: Sequence[str]) -> list[str] | None:
        """Texts as they are cut, in lower case if need be; None where one is no line, or may hold an added token.

        Added tokens are found in a text before it is cut into words.
        """
        lines = list(map(lower, texts)) if self._tokenizer.normalizer is not None else list(texts)
        whole = "".join(texts), "".join(lines)
        plain = not any(token in text for token in self._added for text in whole)
        return lines if plain and not any(line.find("\n", 0, -1) >= 0 for line in lines) else None

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of what `lines` gave, end to end, int64 [T], and how many each line has, int64 [P]."""
        if len(self._places) > MOST_WORDS:
            self._forget()
        places, ends = self._look_up(lines)
        self._encode_new()
        starts = self._ends[places]
        lengths = self._ends[places + 1] - starts
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        ids = self._ids[np.arange(before[-1]) + np.repeat(starts - before[:-1], lengths)]
        return ids, np.diff(before[ends], prepend=0)

    def _look_up(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The number of each word, int64 [W], and the word at which each line ends, exclusive, int64 [P]."""
        cut = self._cutter.cutting(lines)
        places: list[int] = []
        ends = []
        for line in lines:
            places.extend(map(self._places.__getitem__, cut(line)))
            ends.append(len(places))
        return np.array(places, np.int64), np.array(ends, np.int64)

    def _encode_new(self) -> None:
        """Hold the ids of words that were not met before: word i has `_ids[_ends[i]:_ends[i+1]]`."""
        words = list(islice(self._places, len(self._ends) - 1, None))
        if words:
            encodings = self._tokenizer.encode_batch_fast(words, add_special_tokens=False)
            ids = [np.array(encoding.ids, np.int64) for encoding in encodings]
            self._ids = np.concatenate([self._ids, *ids])
            self._ends = np.concatenate([self._ends, self._ends[-1] + np.cumsum(list(map(len, ids)))])


class PreTokenCutter:
    """GPT-2's pattern (openai/gpt-2, encoder.py) by the classes that the library gives to the characters met so far.

    Which characters are letters, numbers and white space is a matter of the library's edition of Unicode, so each is
    tried on it once.
    """

    def __init__(self) -> None:
        from tokenizers import pre_tokenizers

        self._library = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._classes: dict[str, str] = {}
        self._meet(map(chr, range(128)))

    def cutting(self, lines: Iterable[str]) -> Callable[[str], list[str]]:
        """Build the function that cuts a line into words, which join to the line."""
        met = set().union(*(line for line in lines if not line.isascii()))
        self._meet(met - self._classes.keys())
        return self._pattern.findall

    def _meet(self, characters: Iterable[str]) -> None:
        new = {character: self._class(character) for character in characters}
        if new:
            self._classes |= new
            letter, number, space = map(self._written, ("letter", "number", "space"))
            self._pattern = re.compile(
                rf"'(?:[stmd]|re|ve|ll)| ?[{letter}]+| ?[{number}]+| ?[^{letter}{number}{space}]+"
                rf"|[{space}]+(?![^{space}])|[{space}]+"
            )

    def _class(self, character: str) -> str:
        """Which characters it is one word with, if any."""
        for neighbor, name in _CLASS_OF_NEIGHBOR.items():
            if len(self._library.pre_tokenize_str(neighbor + character)) == 1:
                return name
        return "space"

    def _written(self, name: str) -> str:
        """The characters of a class, as they stand between the brackets of a pattern."""
        return "".join(_ranges(sorted(ord(c) for c, of in self._classes.items() if of == name)))


def _ranges(points: Sequence[int]) -> Iterator[str]:
    """Rising code points as ranges of a pattern.

    >>> list(_ranges([48, 49, 50, 97]))
    ['0-2', 'a-a']
    """
    steps = np.flatnonzero(np.diff(points, prepend=-2) > 1).tolist()
    for first, last in zip(steps, [*steps[1:], len(points)], strict=True):
        yield f"{re.escape(chr(points[first]))}-{re.escape(chr(points[last - 1]))}"
