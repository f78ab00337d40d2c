"""Sub-words: byte-level BPE trained here, and any tokenizer given as a Hugging Face file."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from stages.errors import DataError
from stages.interrupts import stoppable
from stages.text.config import LARGEST_VOCABULARY
from stages.text.spool import Pieces
from stages.text.tokenizer import EOS, UNK, TextTokenizer, TrainableTokenizer
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


LONGEST_WORD = 1000
"""Characters of a run that merges are learnt from as one word."""
_LONG_RUN = re.compile(rf"\w{{{LONGEST_WORD + 1},}}|(?:[^\w\s]|_){{{LONGEST_WORD + 1},}}|\s{{{LONGEST_WORD + 1},}}")
BATCH_CHARACTERS = 2**18
"""Text encoded at once: an encoding takes a hundred times the memory of its ids."""
FEW_CHARACTERS = 2**13
"""Text that is encoded as it is: to cut it into words first would take longer."""


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn whatever the library raises into a DataError that begins with `what`.

    It raises bare Exceptions, and where its Rust code panics a BaseException of a class that cannot be imported.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise DataError(f"{what}: {error}.") from error
        raise


class HuggingFaceTokenizer(TextTokenizer):
    """A tokenizer of Hugging Face's library, with `<eos>` after each document.

    Lines are encoded one by one; `<eos>` is added to a vocabulary that lacks it.
    """

    kind = "given"
    eos_after = "document"

    def __init__(self, tokenizer: "Tokenizer") -> None:
        from tokenizers import processors

        tokenizer.no_truncation()
        tokenizer.no_padding()
        if tokenizer.token_to_id(EOS) is None:
            tokenizer.add_special_tokens([EOS])
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.eos_id = vocabulary[EOS]
        self.unk_id = vocabulary.get(getattr(tokenizer.model, "unk_token", None) or UNK)
        self.vocabulary_size = max(vocabulary.values()) + 1
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {EOS}", special_tokens=[(EOS, self.eos_id)]
        )
        self._tokenizer = tokenizer

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids = [np.zeros(0, np.int64)]
        counts = [np.zeros(0, np.int64)]
        for batch in _batches(texts):
            with library_errors("The tokenizer cannot read the text"):
                batch_ids, batch_counts = self._encode_batch(batch)
            ids.append(batch_ids)
            counts.append(batch_counts)
        return np.concatenate(ids), np.concatenate(counts)

    @cached_property
    def _words(self) -> WordEncoder | None:
        """The encoder of single words, where text is cut as `bpe` cuts it."""
        return WordEncoder(self._tokenizer) if _cuts_as_bpe(self._tokenizer) else None

    def _encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        if sum(map(len, texts)) > FEW_CHARACTERS and self._words is not None:
            lines = self._words.lines(texts)
            if lines is not None:
                return self._words.encode(lines)
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = [np.array(encoding.ids, np.int64) for encoding in encodings]
        return np.concatenate(ids), np.array(list(map(len, ids)), np.int64)

    def huggingface(self) -> "Tokenizer":
        return self._tokenizer


class BpeTokenizer(HuggingFaceTokenizer, TrainableTokenizer):
    """Byte-level BPE (GPT-2's pattern within lines); a newline belongs to the line that it ends."""

    kind = "bpe"

    @classmethod
    def train(cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1) -> Self:
        from tokenizers import pre_tokenizers, trainers

        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size or LARGEST_VOCABULARY,
            special_tokens=[EOS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer = _bpe_layout(lowercase)
        batches = (list(_words_cut(batch)) for p in texts for batch in _batches(p.texts))
        stoppable(lambda stop: tokenizer.train_from_iterator(takewhile(lambda _: not stop.is_set(), batches), trainer))
        return cls(tokenizer)


def _bpe_layout(lowercase: bool) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.BPE())
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    lines = pre_tokenizers.Split("\n", "merged_with_previous")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([lines, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _cuts_as_bpe(tokenizer: "Tokenizer") -> bool:
    """Whether a tokenizer cuts text as those made here, and gives a word the same ids wherever it stands."""
    from tokenizers import models

    own = _bpe_layout(lowercase=tokenizer.normalizer is not None)
    same = [_state(tokenizer.normalizer), _state(tokenizer.pre_tokenizer)]
    fixed = isinstance(tokenizer.model, models.BPE) and not tokenizer.model.dropout
    return fixed and same == [_state(own.normalizer), _state(own.pre_tokenizer)]


def _state(step: Any) -> bytes | None:
    """A step of a tokenizer as the library writes it."""
    state: bytes | None = None if step is None else step.__getstate__()
    return state


def _words_cut(texts: Iterable[str]) -> Iterator[str]:
    """The same texts, cut where words are longer than `LONGEST_WORD`: learning takes quadratic time in their length.

    Such a word is an unbroken run of letters and digits, of signs, or of white space, in one line.
    """
    for text in texts:
        start = 0
        for run in _LONG_RUN.finditer(text) if len(text) > LONGEST_WORD else ():
            for cut in range(run.start() + LONGEST_WORD, run.end(), LONGEST_WORD):
                yield text[start:cut]
                start = cut
        yield text[start:]


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    start = characters = 0
    for number, text in enumerate(texts, start=1):
        characters += len(text)
        if characters >= BATCH_CHARACTERS or number == len(texts):
            yield texts[start:number]
            start, characters = number, 0
