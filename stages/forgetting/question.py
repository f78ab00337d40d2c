"""Documents that are looked for: by their names, by their places, or as a text without a name."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.config import read_regular
from stages.errors import UsageError
from stages.forgetting.spans import RowSpan
from stages.forgetting.windows import Windows
from stages.lineage.corpus import token_text, tokenizer_digest
from stages.updating.change import NAMED

if TYPE_CHECKING:
    from stages.text.excerpt import TokenText

COPIED = 50
"""Fewest tokens of a copy, by default."""
SHORTEST = 8
"""Tokens of the shortest document that is looked for by its tokens; shorter ones are everywhere."""


@dataclass(frozen=True)
class DocumentQuestion:
    """Documents that are looked for."""

    names: frozenset[str] = frozenset()
    """Names of documents."""
    spans: Mapping[str, tuple[RowSpan, ...]] = field(default_factory=dict)
    """Documents by their places in the text of an artifact, by its reference."""
    text: str | None = None
    """A text without a name."""
    copied: int = COPIED
    """Fewest tokens of a copy; 0: copies are not looked for. Of a shorter document all tokens are."""


def named(words: Iterable[str]) -> frozenset[str]:
    """Names of documents, from names and `@FILE` with a name on each line.

    Raises: UsageError if a file cannot be read, or if there is no name.
    """
    names = frozenset(name.removeprefix(NAMED) for name in _names(words))
    if not names or "" in names:
        raise UsageError("Which document? Give its name, @FILE with names, or --text FILE.")
    return names


def _names(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if not word.startswith("@"):
            yield word
            continue
        lines = read_text(Path(word[1:]), "which names documents").split("\n")
        yield from (line.removesuffix("\r") for line in lines if line.strip())


def read_text(path: Path, purpose: str) -> str:
    """The text of a file. Raises: UsageError, naming its purpose, if it cannot be read."""
    try:
        return read_regular(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8"
        raise UsageError(f"{path}, {purpose}, cannot be read: {reason}.") from None


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer of a tokens artifact. Its file is read once, when it is first needed."""

    tokens: Artifact

    @property
    def digest(self) -> str:
        """Digest of its file."""
        return tokenizer_digest(self.tokens)

    @cached_property
    def text(self) -> "TokenText":
        """Encoder and decoder. Raises: ArtifactError if the file holds no tokenizer."""
        return token_text(self.tokens)

    def cut(self, text: str) -> "Passage":
        """The tokens of a text."""
        return Passage(self, np.array(self.text.ids(text), np.int64))


class Passage(NamedTuple):
    """Tokens that are looked for."""

    tokenizer: Tokenizer
    ids: np.ndarray
    """Integers [T]."""

    @property
    def spelled_out(self) -> str:
        """The text of its tokens."""
        return "".join(self.tokenizer.text.pieces(self.ids.tolist()))


def windows_by_tokenizer(
    passages: Sequence[Passage], tokenizers: Iterable[Tokenizer], copied: int
) -> dict[str, list[Windows]]:
    """Windows of passages, by digest of the tokenizer.

    A passage of another tokenizer is spelled out, and cut by this one.

    Args:
        passages: what is looked for; a passage may occur several times.
        tokenizers: one for each digest.
        copied: tokens of a window; a shorter passage is one window.
    """
    by_tokenizer: dict[str, list[Windows]] = {}
    for tokenizer in tokenizers:
        digest = tokenizer.digest
        cut_passages = [passage for passage in passages if passage.tokenizer.digest == digest]
        if not cut_passages:
            cut_passages = [tokenizer.cut(passage.spelled_out) for passage in passages]

        distinct = {}
        for passage in cut_passages:
            # One width, since artifacts store ids in different ones.
            tokens = passage.ids.astype(np.int64).tobytes()
            distinct[tokens] = passage
        by_tokenizer[digest] = _windows(list(distinct.values()), copied)
    return by_tokenizer


def _windows(passages: Sequence[Passage], copied: int) -> list[Windows]:
    """Windows of passages of one tokenizer, a set for each length of a window."""
    if not copied:
        return []
    ids_by_length = defaultdict[int, list[np.ndarray]](list)
    for passage in passages:
        # A passage shorter than a window is one window, of the tokens that are the same anywhere.
        ids = passage.ids if len(passage.ids) >= copied else _inner(passage)
        length = min(copied, len(ids))
        if length >= SHORTEST:
            ids_by_length[length].append(ids)
    return [Windows.of(texts, length) for length, texts in ids_by_length.items()]


def _inner(passage: Passage) -> np.ndarray:
    """Tokens of a short passage that are the same wherever it stands.

    White space around it belongs to what stands beside it. So does the blank with which many
    tokenizers begin a word, so the first token is left out.
    """
    return passage.tokenizer.cut(passage.spelled_out.strip()).ids[1:]
