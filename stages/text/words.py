"""Words, runs of letters between white space, in a stream of token ids.

Tokens are turned back into text, so that one definition of a word serves every tokenizer. A few
texts are used to test whether a tokenizer's ids show where words begin.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import Any

import numpy as np

from stages.errors import UsageError
from stages.text.simple_tokenizers import ByteTokenizer
from stages.text.tokenizer import EOS, TextTokenizer, words

BLOCK_TOKENS = 1 << 17
"""Tokens turned into text at once; each takes a few hundred bytes of memory."""
UNKNOWN = b"?"
"""Stand-in for `<unk>`: it counts as a letter or a word."""
PROBES = ("a a", "a.a", "a\na", "don't", "(a) x-y", "\u8a9e\u8a9e")

_BYTE = re.compile("<0x([0-9A-F]{2})>")


def last_words(ids: Any, doc_offsets: Any, tokenizer: TextTokenizer) -> np.ndarray:
    """The last word of each document, with adjacent punctuation, as a span of tokens.

    `<unk>` counts as a letter (as a word if tokens are words); `<eos>` and other special tokens as
    white space. Reads a bounded number of tokens at a time, and only the end of longer documents.

    Args:
        ids: token ids [T], a NumPy or Zarr array.
        doc_offsets: int64 [D + 1]: document i is the tokens [doc_offsets[i], doc_offsets[i+1]).
        tokenizer: the tokenizer of the ids.
    Returns: int64 [D, 2]: first token of the word, and one past its last; a document without a word
        has an empty span at its end.
    Raises: UsageError if the tokenizer's ids do not show where words begin and end, or a word
    begins inside a token.
    """
    spelling = word_spelling(tokenizer)
    offsets = np.asarray(doc_offsets[:], np.int64)
    num_documents = len(offsets) - 1
    spans = np.empty((num_documents, 2), np.int64)
    for first, last in _batches(offsets):
        block_start = int(offsets[first])
        block_stop = int(offsets[last])
        # a document alone may be longer than memory holds
        if last - first == 1:
            spans[first] = _ending_word(ids, block_start, block_stop, spelling)
            continue

        block = np.asarray(ids[block_start:block_stop]).tolist()
        for number in range(first, last):
            start = int(offsets[number])
            stop = int(offsets[number + 1])
            document = block[start - block_start : stop - block_start]
            word_start, word_stop = _last_word(document, spelling)
            spans[number] = (start + word_start, start + word_stop)
    return spans


def word_spelling(tokenizer: TextTokenizer) -> list[bytes]:
    """The UTF-8 text of each id, with all white space of the original text.

    Raises: UsageError if the ids of a tokenizer do not show it.
    """
    spelled = _spelled(tokenizer)
    for probe in PROBES:
        ids, _ = tokenizer.encode_texts([probe])
        text = b"".join(spelled[id] for id in ids.tolist()).decode("utf-8", "replace")
        if len(words(text)) != len(words(probe)):
            raise UsageError(
                f"The tokens of this tokenizer do not tell where words begin and end: {probe!r} reads as {text!r}. "
                "Last words can be found with word, char, byte and bpe, and with a tokenizer.json that keeps white "
                "space (byte-level, metaspace) or cuts words at white space alone (WordLevel, WordPiece)."
            )
    return spelled


def _spelled(tokenizer: TextTokenizer) -> list[bytes]:
    """The text of every id, in order; empty for unused ids."""
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
    """Function from a token of a `tokenizer.json` to its bytes, chosen by the file's decoder and
    model.
    """
    steps = {*_steps(specification["pre_tokenizer"]), *_steps(specification["decoder"])}
    model = specification["model"]
    if "ByteLevel" in steps:
        return _byte_level
    if model["type"] in ("WordLevel", "WordPiece"):
        return (
            str.encode
            if "Fuse" in steps
            else partial(_whole_word, model.get("continuing_subword_prefix"))
        )
    return _metaspace


def _steps(step: dict[str, Any] | None) -> Iterator[str]:
    """Types of a pre-tokenizer or decoder and of all its parts."""
    if step is not None:
        yield step["type"]
        for part in (*step.get("pretokenizers", ()), *step.get("decoders", ())):
            yield from _steps(part)


def _byte_level(token: str) -> bytes:
    """Bytes of a token in GPT-2's table, which has a printable character for each byte."""
    table = _bytes_of_symbols()
    return bytes(map(table.__getitem__, token)) if table.keys() >= set(token) else token.encode()


@cache
def _bytes_of_symbols() -> dict[str, int]:
    vocabulary = ByteTokenizer(lowercase=False).huggingface().get_vocab()
    return {symbol: byte for symbol, byte in vocabulary.items() if symbol != EOS}


def _whole_word(continuing: str | None, token: str) -> bytes:
    """Bytes of a token that begins a word, unless it has WordPiece's prefix (`##`)."""
    if continuing and token.startswith(continuing):
        return token.removeprefix(continuing).encode()
    return f" {token}".encode()


def _metaspace(token: str) -> bytes:
    """Bytes of a SentencePiece token: U+2581 is a space, `<0xNN>` a byte."""
    if byte := _BYTE.fullmatch(token):
        return bytes.fromhex(byte[1])
    return token.replace("\u2581", " ").encode()


def _batches(offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges [first, last) of documents with about BLOCK_TOKENS tokens in total, at least one
    document each.

    """
    first = 0
    num_documents = len(offsets) - 1
    while first < num_documents:
        max_offset = offsets[first] + BLOCK_TOKENS
        last_fitting = int(np.searchsorted(offsets, max_offset, side="right")) - 1
        last = min(max(last_fitting, first + 1), num_documents)
        yield first, last
        first = last


def _ending_word(ids: Any, start: int, stop: int, spelling: Sequence[bytes]) -> tuple[int, int]:
    """The last word of tokens [start, stop); reading stops once its beginning is found."""
    num_read = BLOCK_TOKENS
    while True:
        begin = max(start, stop - num_read)
        tokens = np.asarray(ids[begin:stop]).tolist()
        first, end = _last_word(tokens, spelling)
        if begin == start or 0 < first < end:
            return begin + first, begin + end
        # A word that fills everything read so far may begin earlier.
        num_read *= 2


def _last_word(ids: Sequence[int], spelling: Sequence[bytes]) -> tuple[int, int]:
    """First token of the last word, and one past its last; both equal the number of tokens if there
    is no word.

    >>> _last_word([0, 1, 2, 1], [b"a ", b" ", b"be"])
    (2, 3)
    """
    parts = [spelling[id] for id in ids]
    # a character may be cut off before the first token
    text = b"".join(parts).decode("utf-8", "surrogateescape")
    all_words = words(text)
    if not all_words:
        return len(ids), len(ids)

    # bytes of the text at which the word begins and ends
    word = all_words[-1]
    before_word = text[: text.rindex(word)]
    start = len(before_word.encode("utf-8", "surrogateescape"))
    end = start + len(word.encode("utf-8", "surrogateescape"))

    # the token that holds the first of these bytes
    ends = list(accumulate(map(len, parts)))
    first = bisect_right(ends, start)

    # what the first token spells before the word
    token_start = ends[first] - len(parts[first])
    before = parts[first][: start - token_start]
    if words(before.decode("utf-8", "replace")):
        token = parts[first].decode("utf-8", "replace")
        raise UsageError(
            f"The last word of a document begins inside token {ids[first]} ({token!r}); last words need a "
            "tokenizer none of whose tokens goes on past white space."
        )
    return first, bisect_right(ends, end - 1) + 1
