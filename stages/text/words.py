"""Words, runs of letters between white space, in a stream of token ids.

Tokens are turned back into the text that they stand for, so that one definition of a word serves every
tokenizer; whether a tokenizer's ids tell its words apart is tried out on a few texts.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from stages.errors import UsageError
from stages.text.byte import ByteTokenizer
from stages.text.tokenizer import EOS, TextTokenizer
from stages.text.vocabulary import words

BLOCK_TOKENS = 1 << 17
"""Tokens turned into text at once, each of which takes a few hundred bytes of memory."""
UNKNOWN = b"?"
"""Stand-in for `<unk>` in counts: a letter or a word."""
PROBES = ("a a", "a.a", "a\na", "don't", "(a) x-y", "\u8a9e\u8a9e")

_BYTE = re.compile("<0x([0-9A-F]{2})>")
_BLANK = np.array([words(chr(byte)) == [] for byte in range(128)] + [False] * 128)
_WIDE_BLANKS = [chr(point).encode() for point in range(0x80, 0x3001) if not words(chr(point))]
_BLANK_LEADS = np.isin(np.arange(256), [encoded[0] for encoded in _WIDE_BLANKS])


@dataclass(frozen=True)
class Spelling:
    """The text that each id stands for: id i is the UTF-8 `text[ends[i-1]:ends[i]]`; uint8 [S], int64 [V]."""

    text: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, spelled: Sequence[bytes]) -> "Spelling":
        lengths = np.fromiter(map(len, spelled), np.int64, len(spelled))
        return cls(np.frombuffer(b"".join(spelled), np.uint8), np.cumsum(lengths))

    def spell(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bytes [B] of n tokens, and where each begins, then where the last ends, int64 [n + 1]."""
        starts = np.concatenate([np.zeros(1, np.int64), self.ends[:-1]])[ids]
        lengths = self.ends[ids] - starts
        begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        places = np.arange(begins[-1]) + np.repeat(starts - begins[:-1], lengths)
        return self.text[places], begins


def last_words(ids: Any, doc_offsets: Any, tokenizer: TextTokenizer) -> np.ndarray:
    """Where the last word of each document is, with the punctuation that touches it.

    `<unk>` counts as a letter (as a word, where tokens are words); `<eos>` and other special tokens as white space.
    Reads a bounded number of tokens at a time, and the end alone of longer documents.

    Args:
        ids: token ids [T], a NumPy or Zarr array.
        doc_offsets: int64 [D + 1]: document i is the tokens [doc_offsets[i], doc_offsets[i+1]).
        tokenizer: what made the ids.
    Returns: int64 [D, 2]: first token of the word, and one past its last; a document without a word has an empty
        span at its end.
    Raises: UsageError if the tokenizer's ids do not tell where words begin and end, or a word begins inside a token.
    """
    spelling = word_spelling(tokenizer)
    offsets = np.asarray(doc_offsets[:], np.int64)
    spans = np.empty((len(offsets) - 1, 2), np.int64)
    for first, last in _batches(offsets):
        spans[first:last] = _ending_words(ids, offsets[first : last + 1], spelling)
    return spans


def word_spelling(tokenizer: TextTokenizer) -> Spelling:
    """Spelling of each id, with white space wherever the text had some.

    Raises: UsageError if the ids of a tokenizer do not tell.
    """
    spelling = Spelling.of(_spelled(tokenizer))
    for probe in PROBES:
        ids, _ = tokenizer.encode_texts([probe])
        text = spelling.spell(np.asarray(ids, np.int64))[0].tobytes().decode("utf-8", "replace")
        if len(words(text)) != len(words(probe)):
            raise UsageError(
                f"The tokens of this tokenizer do not tell where words begin and end: {probe!r} reads as {text!r}. "
                "Last words can be found with word, char, byte and bpe, and with a tokenizer.json that keeps white "
                "space (byte-level, metaspace) or cuts words at white space alone (WordLevel, WordPiece)."
            )
    return spelling


def _spelled(tokenizer: TextTokenizer) -> list[bytes]:
    """The text of every id, in order; nothing for ids that no token has."""
    huggingface = tokenizer.huggingface()
    specification = json.loads(huggingface.to_str())
    spelled_as = speller(specification)
    spelled = [b""] * tokenizer.vocabulary_size
    for token, id in huggingface.get_vocab(with_added_tokens=True).items():
        spelled[id] = spelled_as(token)
    for added in specification["added_tokens"]:
        spelled[added["id"]] = b" " if added["special"] else added["content"].encode()
    spelled[tokenizer.eos_id] = b" "
    if tokenizer.unk_id is not None:
        spelled[tokenizer.unk_id] = spelled_as(UNKNOWN.decode())
    return spelled


def speller(specification: dict[str, Any]) -> Callable[[str], bytes]:
    """The bytes that tokens of a `tokenizer.json` stand for, by how it writes them: read from its decoder and model."""
    steps = {*_steps(specification["pre_tokenizer"]), *_steps(specification["decoder"])}
    model = specification["model"]
    if "ByteLevel" in steps:
        return _byte_level
    if model["type"] in ("WordLevel", "WordPiece"):
        return str.encode if "Fuse" in steps else _whole_words(model.get("continuing_subword_prefix"))
    return _metaspace


def _steps(step: dict[str, Any] | None) -> Iterator[str]:
    """Types of a pre-tokenizer or decoder and of all that it consists of."""
    if step is not None:
        yield step["type"]
        for part in (*step.get("pretokenizers", ()), *step.get("decoders", ())):
            yield from _steps(part)


def _byte_level(token: str) -> bytes:
    """A token of GPT-2's table, a printable character for each byte."""
    table = _bytes_of_symbols()
    known = all(symbol in table for symbol in token)
    return bytes(table[symbol] for symbol in token) if known else token.encode()


@cache
def _bytes_of_symbols() -> dict[str, int]:
    vocabulary = ByteTokenizer(lowercase=False).huggingface().get_vocab()
    return {symbol: byte for symbol, byte in vocabulary.items() if symbol != EOS}


def _whole_words(continuing: str | None) -> Callable[[str], bytes]:
    """Tokens that begin a word, but for those with the prefix of WordPiece (`##`)."""

    def spell(token: str) -> bytes:
        if continuing and token.startswith(continuing):
            return token.removeprefix(continuing).encode()
        return f" {token}".encode()

    return spell


def _metaspace(token: str) -> bytes:
    """A token of SentencePiece: U+2581 is a space, `<0xNN>` a byte."""
    if byte := _BYTE.fullmatch(token):
        return bytes.fromhex(byte[1])
    return token.replace("\u2581", " ").encode()


def _batches(offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Documents [first, last) of about BLOCK_TOKENS tokens in all, at least one."""
    first, end = 0, len(offsets) - 1
    while first < end:
        fitting = int(np.searchsorted(offsets, offsets[first] + BLOCK_TOKENS, side="right")) - 1
        last = min(max(fitting, first + 1), end)
        yield first, last
        first = last


def _ending_words(ids: Any, offsets: np.ndarray, spelling: Spelling) -> np.ndarray:
    """Last words of a batch of documents; of a long one as much is read as it takes to find its last word's start."""
    start, stop = int(offsets[0]), int(offsets[-1])
    read = BLOCK_TOKENS if len(offsets) == 2 else stop - start
    while True:
        begin = max(start, stop - read)
        spans = begin + _spans(np.asarray(ids[begin:stop]), np.maximum(offsets, begin) - begin, spelling)
        whole = begin < spans[0, 0] < spans[0, 1]
        if whole or begin == start:
            return spans
        read *= 2


def _spans(ids: np.ndarray, offsets: np.ndarray, spelling: Spelling) -> np.ndarray:
    """Last words of documents whose tokens are all of `ids`, int64 [D, 2]."""
    text, begins = spelling.spell(ids)
    edges, blank = begins[offsets], _blank(text)
    before_text, before_blank = _last_before(~blank), _last_before(blank)
    end = before_text[edges[1:]] + 1
    start = np.maximum(before_blank[end] + 1, edges[:-1])
    found = np.flatnonzero(end > edges[:-1])
    start, end = start[found], end[found]
    first = np.searchsorted(begins, start, side="right") - 1
    _refuse_inside(ids[first[before_text[start] >= begins[first]]], spelling)
    spans = np.repeat(offsets[1:, None], 2, axis=1)
    spans[found] = np.stack([first, np.searchsorted(begins, end - 1, side="right")], axis=1)
    return spans


def _last_before(marked: np.ndarray) -> np.ndarray:
    """For each of the places 0 … n the last marked one before it, -1 if there is none; int64 [n + 1]."""
    places = np.where(marked, np.arange(len(marked)), -1)
    return np.concatenate([np.full(1, -1), np.maximum.accumulate(places)])


def _blank(text: np.ndarray) -> np.ndarray:
    """Which bytes of UTF-8 text belong to white space, bool [B]."""
    blank = _BLANK[text]
    leads = np.flatnonzero(_BLANK_LEADS[text])
    padded = np.concatenate([text, np.zeros(2, np.uint8)])
    for encoded in _WIDE_BLANKS if len(leads) else ():
        here = leads[np.all([padded[leads + i] == byte for i, byte in enumerate(encoded)], axis=0)]
        for i in range(len(encoded)):
            blank[here + i] = True
    return blank


def _refuse_inside(ids: np.ndarray, spelling: Spelling) -> None:
    if len(ids):
        token = spelling.spell(ids[:1])[0].tobytes().decode("utf-8", "replace")
        raise UsageError(
            f"The last word of a document begins inside token {int(ids[0])} ({token!r}); last words need a "
            "tokenizer none of whose tokens goes on past white space."
        )
