"""Shards of text in the draft's scratch folder: words of train, the vocabulary, and ids, with their
figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stages.array_files import save_arrays
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Shard
from stages.examples import PAIRS
from stages.text.config import GIVEN, TokenizeConfig
from stages.text.documents import ENDS_LINE, OPENS_DOCUMENT, OPENS_PARAGRAPH
from stages.text.form import counted
from stages.text.huggingface import open_tokenizer
from stages.text.simple_tokenizers import SplitText, WordTokenizer
from stages.text.spool import Pieces, Spool
from stages.text.tokenizer import EosRule, TextTokenizer, splitting
from stages.tokenization.sources import TOKENIZER_FILE
from stages.tokenization.spooling import SPOOL, TOKENIZER_MADE, TextShard


@dataclass(frozen=True)
class WordsShard(Shard):
    """Part of the text of train, to be split into words."""

    text: TextShard


@dataclass(frozen=True)
class VocabularyShard(Shard):
    """All text of train, from which the vocabulary is made."""

    texts: tuple[TextShard, ...]


def vocabulary_shards(texts: Sequence[TextShard]) -> "list[WordsShard | VocabularyShard]":
    """Shards that come before the texts are encoded."""
    train = tuple(text for text in texts if text.split == "train")
    return [
        *(WordsShard(words_key(text), text, phase="words") for text in train),
        VocabularyShard(TOKENIZER_MADE, train, phase="vocabulary"),
    ]


def split_words(
    config: TokenizeConfig, folder: Path, spool: Spool, shard: WordsShard
) -> ShardOutput:
    """Save a text's words. The record holds the figures of the text, which is not read again."""
    pieces = spool.pieces(shard.text.text)
    split = SplitText.of(pieces.texts, config.lowercase)
    output = ShardOutput(folder, _text_figures(pieces, len(split.places)))
    split.save(output.add(words_file(shard.text)))
    return output


def make_vocabulary(
    config: TokenizeConfig, folder: Path, spool: Spool, shard: VocabularyShard
) -> ShardOutput:
    """Save the tokenizer made from the output of `split_words`."""
    split = (SplitText.read(folder / words_file(text)) for text in shard.texts)
    lines = (int(np.count_nonzero(spool.marks(text.text) & ENDS_LINE)) for text in shard.texts)
    tokenizer = WordTokenizer.learn(
        zip(split, lines, strict=True), config.vocab_size, config.lowercase, config.min_count or 1
    )
    output = ShardOutput(folder)
    tokenizer.save(output.add(TOKENIZER_FILE))
    return output


def words_key(text: TextShard) -> str:
    """Key of the shard that splits a text of train."""
    return f"split-{text.key}"


def words_file(text: TextShard) -> str:
    """File of the words of a shard of train."""
    return f"scratch/words/{text.key}.npy"


class SpooledText:
    """The spool of a draft's folder, and the tokenizer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.spool = Spool(folder / SPOOL)

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer; call this only after it was made."""
        return open_tokenizer(self._folder / TOKENIZER_FILE)

    def encode(self, shard: TextShard) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, int]]:
        """Ids of a shard, [T]; where each piece ends in them, int64 [P]; marks, uint8 [P]; figures
        of its text.

        If the vocabulary was made of the words of train, these are split already, and their record
        has the figures.
        """
        tokenizer = self.tokenizer
        if isinstance(tokenizer, WordTokenizer):
            return self._encode_words(tokenizer, shard)
        pieces = self.spool.pieces(shard.text)
        words_of = splitting(pieces.texts)
        num_words = sum(len(words_of(text)) for text in pieces.texts)
        figures = _text_figures(pieces, num_words)
        rule = eos_rule(tokenizer, aligned=shard.side is not None)
        ids, ends = tokenizer.encode(pieces, rule)
        return ids, ends, pieces.marks, figures

    def _encode_words(
        self, tokenizer: WordTokenizer, shard: TextShard
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, int]]:
        """The result of `encode` by a tokenizer of words."""
        word_file = self._folder / words_file(shard)
        if word_file.exists():
            split = SplitText.read(word_file)
            marks = self.spool.marks(shard.text)
            figures = {}
        else:
            pieces = self.spool.pieces(shard.text)
            split = SplitText.of(pieces.texts, tokenizer.lowercase)
            marks = pieces.marks
            figures = _text_figures(pieces, len(split.places))
        ids, ends = tokenizer.closed(*tokenizer.encode_split(split), marks)
        return ids, ends, marks, figures


def eos_rule(tokenizer: TextTokenizer, *, aligned: bool) -> EosRule:
    """Rule for `<eos>`: after every sentence of a pair, even if the tokenizer adds none to text of
    one language.
    """
    return "document" if aligned and tokenizer.eos_after == "never" else tokenizer.eos_after


def vocabulary_figures(config: TokenizeConfig, tokenizer: TextTokenizer) -> dict[str, Any]:
    """Figures of a tokenizer, and the kind of examples, for the metrics of tokens."""
    return {
        "vocabulary_size": tokenizer.vocabulary_size,
        "eos_id": tokenizer.eos_id,
        "unk_id": tokenizer.unk_id,
        "tokenizer": tokenizer.kind if config.tokenizer == GIVEN else config.tokenizer,
        "eos_after": eos_rule(tokenizer, aligned=config.is_aligned),
        **({"examples": PAIRS} if config.is_aligned else {}),
        **tokenizer.special_ids,
    }


def encode_shard(folder: Path, text: SpooledText, shard: TextShard) -> ShardOutput:
    """Save a shard's ids, and the tokens at which its documents and paragraphs begin; the record
    counts them.
    """
    ids, ends, marks, figures = text.encode(shard)
    # a piece begins where the one before ends
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    opens_document = (marks & OPENS_DOCUMENT) > 0
    opens_paragraph = (marks & OPENS_PARAGRAPH) > 0
    documents = starts[opens_document]
    paragraphs = starts[opens_paragraph]
    is_unknown = ids == text.tokenizer.unk_id
    record = {
        **figures,
        "tokens": len(ids),
        "documents": len(documents),
        "paragraphs": len(paragraphs),
        "unknown": int(np.count_nonzero(is_unknown)),
    }
    if shard.side is not None:  # sentences are stored without newlines
        lengths = np.diff(documents, append=len(ids))
        record["line_ends"] = len(documents)
        record["longest"] = int(lengths.max())

    output = ShardOutput(folder, record)
    for name, values in (("ids", ids), ("documents", documents), ("paragraphs", paragraphs)):
        save_arrays(output.add(scratch_file(shard, name)), values)
    return output


def _text_figures(pieces: Pieces, inside: int) -> dict[str, int]:
    """Figures of a text; `inside`: its words between white space, to which one per line is added.

    Characters and bytes are counted with newlines, a CRLF as one.
    """
    text = "".join(pieces.texts)
    return {
        "characters": len(text),
        "bytes": len(text.encode()),
        "words": inside + len(pieces.where(ENDS_LINE)),
        **counted([text]),
    }


def scratch_file(shard: TextShard, name: str) -> str:
    """File of a shard's `ids`, `documents` or `paragraphs`."""
    return f"scratch/{name}/{shard.key}.npy"
