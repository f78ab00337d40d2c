"""Settings of `tokenize`."""

import re
from math import isclose
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from stages.config import StageConfig
from stages.errors import UsageError, did_you_mean
from stages.text import TOKENIZERS

GIVEN = "given"
"""The tokenizer is read from a file or from another tokens artifact instead of being made here."""
UNTRAINED = frozenset({GIVEN, "byte"})
"""Tokenizers whose vocabulary does not come from the text."""
DEFAULT_SHARES = (0.9, 0.05, 0.05)
SMALLEST_VOCABULARY = {"word": 3, "char": 3, "bpe": 257}
"""`<unk>`, `<eos>` and one type; 256 bytes and `<eos>`."""
LARGEST_VOCABULARY = 2**24
"""Types of the largest vocabulary: some ten times the words of the largest corpora, and weights beyond any machine."""
LARGEST_RECORD = 256 * 10**6
"""Bytes of the longest line of `.jsonl`, or text of a row, that is read, since it is held whole, up to three times."""
TEXT = "text"
"""The column, or field, that holds the text where nobody says."""

Documents = Literal["file", "line", "blank-line", "wikitext", "jsonl"]
Share = Annotated[float, Field(gt=0, lt=1)]


def _none_if_auto(value: Any) -> Any:
    return None if value == "auto" else value


Auto = BeforeValidator(_none_if_auto)
"""`auto` is None: left to `Tokenize.resolve`."""


class TokenizeConfig(StageConfig):
    """How text becomes a stream of token ids."""

    not_identity: ClassVar[frozenset[str]] = frozenset({"max_record_bytes", "column", "files"})
    """The role of an input file says which of its columns is read."""

    tokenizer: str = "bpe"
    """word, char, byte, bpe, or `given` (named by the reference `tokenizer`)."""
    vocab_size: Annotated[Annotated[int, Field(gt=0, le=LARGEST_VOCABULARY)] | None, Auto] = None
    """Types kept, special ones included; None or `auto`: all of train's (word, char), chosen from its size (bpe)."""
    min_count: Annotated[Annotated[int, Field(gt=0, le=2**62)] | None, Auto] = None
    """Types of `word` that train has less often are `<unk>`; None or `auto`: 1 if the text has `<unk>`, else 2."""
    eos: str | None = None
    """Token that ends a document for a pretrained tokenizer; None: `<|endoftext|>`, or the tokenizer's own."""
    lowercase: bool = False
    """Whether text is lower-cased before it is tokenized."""
    documents: Documents | None = None
    """Unit of documents; None: a file for plain text, a record for `.jsonl`, a topic for pydocs."""
    split: tuple[Share, ...] | None = None
    """Shares of the text for train, valid and, if there are three, test, where files are not given by split.

    None: .9, .05, .05.
    """
    column: Annotated[str | None, Field(min_length=1)] = None
    """Column of a table, or field of a `.jsonl` record, that holds the text; None: `text`."""
    files: str | None = None
    """Which of the files of train, or of the one corpus, are read, counted from 0: `0-9`; None: all."""
    max_record_bytes: Annotated[int, Field(gt=0)] = LARGEST_RECORD
    """Longest line of `.jsonl`, or text of a row, that is read."""

    @field_validator("tokenizer")
    @classmethod
    def _known_tokenizer(cls, name: str) -> str:
        if name != GIVEN and name not in TOKENIZERS:
            raise UsageError(f"There is no tokenizer {name!r}; {did_you_mean(name, TOKENIZERS.names())}")
        return name

    @field_validator("files")
    @classmethod
    def _numbers(cls, files: str | None) -> str | None:
        if files is not None and re.fullmatch(r"[0-9]+(-[0-9]+)?", files) is None:
            raise ValueError("expected the numbers of the first and the last file, counted from 0, as 0-9, or of one")
        return files

    @field_validator("split", mode="before")
    @classmethod
    def _two_or_three(cls, shares: Any) -> Any:
        if isinstance(shares, list | tuple) and len(shares) not in (2, 3):
            raise ValueError("expected two shares, of train and valid, or three, of train, valid and test")
        return shares

    @field_validator("split")
    @classmethod
    def _whole(cls, shares: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if shares is None:
            return None
        if not isclose(sum(shares), 1, abs_tol=1e-6):
            named = "train and valid" if len(shares) == 2 else "train, valid and test"
            raise ValueError(f"the shares of {named} sum to {sum(shares):g}, not to 1")
        return shares

    @model_validator(mode="after")
    def _fits_tokenizer(self) -> Self:
        if self.vocab_size is not None:
            self._check_vocab_size(self.vocab_size)
        if self.min_count is not None and self.tokenizer != "word":
            raise ValueError(f"min_count goes with the word tokenizer, not with {self.tokenizer}")
        if self.eos is not None and self.tokenizer != GIVEN:
            raise ValueError("eos goes with the tokenizer of a pretrained model")
        if self.lowercase and self.tokenizer == GIVEN:
            raise ValueError("lowercase does not go with a given tokenizer, which decides by itself")
        return self

    def _check_vocab_size(self, size: int) -> None:
        smallest = SMALLEST_VOCABULARY.get(self.tokenizer)
        if smallest is None:
            raise ValueError(f"the vocabulary of a {self.tokenizer} tokenizer has a fixed size")
        if size < smallest:
            raise ValueError(f"a {self.tokenizer} vocabulary has at least {smallest} types, not {size}")
