"""Settings of `tokenize`."""

from math import isclose
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from stages.config import StageConfig
from stages.errors import UsageError, did_you_mean
from stages.text import TOKENIZERS

GIVEN = "given"
"""The tokenizer is read from a file or from another tokens artifact instead of being made here."""
UNTRAINED = frozenset({GIVEN, "byte"})
"""Tokenizers whose vocabulary does not come from the text."""
DEFAULT_BPE_VOCABULARY = 8192
DEFAULT_SHARES = (0.9, 0.05, 0.05)
SMALLEST_VOCABULARY = {"word": 3, "char": 3, "bpe": 257}
"""`<unk>`, `<eos>` and one type; 256 bytes and `<eos>`."""

Documents = Literal["file", "line", "blank-line", "wikitext", "jsonl"]
Share = Annotated[float, Field(gt=0, lt=1)]


class TokenizeConfig(StageConfig):
    """How text becomes a stream of token ids."""

    tokenizer: str = "word"
    """word, char, byte, bpe, or `given` (named by the reference `tokenizer`)."""
    vocab_size: Annotated[int, Field(gt=0)] | None = None
    """Types kept, special ones included; None: all of train's (word, char), 8192 (bpe)."""
    lowercase: bool = False
    """Whether text is lower-cased before it is tokenized."""
    documents: Documents | None = None
    """What a document is; None: a file for plain text, a record for `.jsonl`, a topic for pydocs."""
    split: tuple[Share, Share, Share] | None = None
    """Shares of the text for train, valid and test, where files are not given by split; None: .9, .05, .05."""

    @field_validator("tokenizer")
    @classmethod
    def _known_tokenizer(cls, name: str) -> str:
        if name != GIVEN and name not in TOKENIZERS:
            raise UsageError(f"There is no tokenizer {name!r}; {did_you_mean(name, TOKENIZERS.names())}")
        return name

    @field_validator("split")
    @classmethod
    def _whole(cls, shares: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if shares is not None and not isclose(sum(shares), 1, abs_tol=1e-6):
            raise ValueError(f"the shares of train, valid and test sum to {sum(shares):g}, not to 1")
        return shares

    @model_validator(mode="after")
    def _fits_tokenizer(self) -> Self:
        if self.vocab_size is not None:
            self._check_vocab_size(self.vocab_size)
        if self.lowercase and self.tokenizer == GIVEN:
            raise ValueError("lowercase does not go with a given tokenizer, which decides by itself")
        return self

    def _check_vocab_size(self, size: int) -> None:
        smallest = SMALLEST_VOCABULARY.get(self.tokenizer)
        if smallest is None:
            raise ValueError(f"the vocabulary of a {self.tokenizer} tokenizer has a fixed size")
        if size < smallest:
            raise ValueError(f"a {self.tokenizer} vocabulary has at least {smallest} types, not {size}")
