"""The tokenizer of a pretrained model: its ids are those that its own library gives."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from stages.errors import content_of
from stages.text.bpe import library_errors
from stages.text.documents import ENDS_DOCUMENT
from stages.text.spool import Pieces
from stages.text.tokenizer import UNK, EosRule, TextTokenizer

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


AROUND_CUT = 100
"""Characters on either side of a cut that tell whether it changes a token."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the tokens that no text has, as a pretrained model knows them."""

    eos: int
    """Put behind every document."""
    start: int
    """The first input of a split."""
    prefix: int | None
    """Token that the model expects before every window (`bos`); None: none."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises: ArtifactError if the file holds something else."""
        with content_of(path):
            return cls(**json.loads(path.read_text("utf-8")))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)) + "\n", "utf-8")


class PretrainedTokenizer(TextTokenizer):
    """Encodes whole documents, since a token may reach across lines; adds nothing to the vocabulary."""

    kind = "pretrained"
    eos_after = "document"
    FILE = "special-tokens.json"
    """Beside `tokenizer.json`: its special tokens."""

    def __init__(self, tokenizer: "Tokenizer", special: SpecialTokens) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.special, self.eos_id = special, special.eos
        self.unk_id = vocabulary.get(getattr(tokenizer.model, "unk_token", None) or UNK)
        self.vocabulary_size = max(vocabulary.values()) + 1
        self._tokenizer = tokenizer
        self._byte_level = "ByteLevel(" in str(tokenizer.pre_tokenizer)

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._joined(texts)

    def may_cut(self, before: str, after: str) -> bool:
        """For byte-level tokenizers, between a newline that no white space is before, and a letter.

        Others read the beginning of a text as nothing within it: a Metaspace puts a mark there. Whether the text is
        cut there into the parts that are encoded by themselves is tried on the characters around.
        """
        newline = before.endswith("\n") and not before[-2:-1].isspace() and len(before) > 1
        if not (self._byte_level and newline and after[:1].isalpha()):
            return False
        left, right = before[-AROUND_CUT:], after[:AROUND_CUT]
        return self._parts(left + right) == self._parts(left) + self._parts(right)

    def encode(self, pieces: Pieces, rule: EosRule | None = None) -> tuple[np.ndarray, np.ndarray]:
        assert rule in (None, self.eos_after), "its library knows no other"
        closing = pieces.where(ENDS_DOCUMENT)
        starts = np.concatenate(([0], closing + 1)).tolist()
        parts = [self._joined(pieces.texts[a:b]) for a, b in zip(starts, [*starts[1:], len(pieces.texts)], strict=True)]
        ids, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        ends = np.cumsum(counts)
        counts[closing] += 1
        return np.insert(ids.astype(self.dtype), ends[closing], self.eos_id), np.cumsum(counts)

    def huggingface(self) -> "Tokenizer":
        return self._tokenizer

    def save(self, path: Path) -> None:
        super().save(path)
        self.special.write(path.with_name(self.FILE))

    def _parts(self, text: str) -> list[str]:
        """Pieces of a text that are encoded by themselves."""
        if self._tokenizer.normalizer is not None:
            text = self._tokenizer.normalizer.normalize_str(text)
        return [part for part, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(text)]

    def _joined(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of texts read as one, int64 [T], and how many tokens begin in each, int64 [P]."""
        if not texts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        with library_errors("The tokenizer cannot read the text"):
            encoding = self._tokenizer.encode("".join(texts), add_special_tokens=False)
        ends = np.cumsum([len(text) for text in texts])
        text_of = np.searchsorted(ends, np.fromiter(_starts(encoding), np.int64, len(encoding.ids)), side="right")
        return np.array(encoding.ids, np.int64), np.bincount(text_of.clip(max=len(texts) - 1), minlength=len(texts))


def _starts(encoding: "Encoding") -> Iterator[int]:
    """The character at which each token begins, never before that of the one before it."""
    latest = 0
    for start, _ in encoding.offsets:
        latest = max(latest, start)
        yield latest


def special_ids(tokenizer: TextTokenizer) -> dict[str, int | None]:
    """Special ids for the metrics of tokens of a pretrained tokenizer; empty for other tokenizers."""
    if not isinstance(tokenizer, PretrainedTokenizer):
        return {}
    return {"start_id": tokenizer.special.start, "prefix_id": tokenizer.special.prefix}
