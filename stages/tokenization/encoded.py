"""Shards of text in the draft's scratch folder: words of train, a vocabulary of them, and ids, all counted."""

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
from stages.text.huggingface import open_tokenizer, special_ids
from stages.text.simple_tokenizers import SplitText, WordTokenizer
from stages.text.spool import Pieces, Spool
from stages.text.tokenizer import EosRule, TextTokenizer, words
from stages.tokenization.sources import TOKENIZER_FILE
from stages.tokenization.spooling import SPOOL, TOKENIZER_MADE, TextShard


@dataclass(frozen=True)
class WordsShard(Shard):
    """Some text of train, to be split into words."""

    text: TextShard


@dataclass(frozen=True)
class VocabularyShard(Shard):
    """All text of train, to be counted."""

    texts: tuple[TextShard, ...]


def vocabulary_shards(texts: Sequence[TextShard]) -> "list[WordsShard | VocabularyShard]":
    """Shards that come before the texts are encoded."""
    train = tuple(text for text in texts if text.split == "train")
    return [
        *(WordsShard(f"words-{text.key}", text, phase="words") for text in train),
        VocabularyShard(TOKENIZER_MADE, train, phase="vocabulary"),
    ]


def split_words(config: TokenizeConfig, folder: Path, spool: Spool, shard: WordsShard) -> ShardOutput:
    """Save a text's words."""
    pieces = spool.pieces(shard.text.text)
    output = ShardOutput(folder, {"lines": len(pieces.where(ENDS_LINE))})
    SplitText.of(pieces.texts, config.lowercase).save(output.add(words_file(shard.text)))
    return output


def make_vocabulary(config: TokenizeConfig, folder: Path, lines: Sequence[int], shard: VocabularyShard) -> ShardOutput:
    """Save the tokenizer, from what `split_words` left; `lines`: how many end in each text."""
    split = (SplitText.read(folder / words_file(text)) for text in shard.texts)
    tokenizer = WordTokenizer.learn(
        zip(split, lines, strict=True), config.vocab_size, config.lowercase, config.min_count or 1
    )
    output = ShardOutput(folder)
    tokenizer.save(output.add(TOKENIZER_FILE))
    return output


def words_file(text: TextShard) -> str:
    """Where the words of a shard of train are left."""
    return f"scratch/words/{text.key}.npy"


class Work:
    """The spool of a draft's folder, and the tokenizer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.spool = Spool(folder / SPOOL)

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """Once there is one."""
        return open_tokenizer(self._folder / TOKENIZER_FILE)

    def encode(self, shard: TextShard, pieces: Pieces) -> tuple[np.ndarray, np.ndarray, int]:
        """Ids of a shard, [T], the token at which each piece ends, int64 [P], and how many words there are.

        The words of train are split already, where the vocabulary was made of them.
        """
        split, tokenizer = self._folder / words_file(shard), self.tokenizer
        # The text was split into words for the vocabulary: what that left is used again.
        if isinstance(tokenizer, WordTokenizer) and split.exists():
            text = SplitText.read(split)
            return *tokenizer.closed(*tokenizer.encode_split(text), pieces), len(text.places)
        rule = eos_rule(tokenizer, aligned=shard.side is not None)
        return *tokenizer.encode(pieces, rule), sum(len(words(piece)) for piece in pieces.texts)


def eos_rule(tokenizer: TextTokenizer, *, aligned: bool) -> EosRule:
    """Where `<eos>` is put: behind every sentence of a pair, even where text of one language has none."""
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
        **special_ids(tokenizer),
    }


def encode_shard(folder: Path, work: Work, shard: TextShard) -> ShardOutput:
    """Save a shard's ids, and the tokens at which its documents and paragraphs begin; the record counts them.

    Characters and bytes are counted with newlines, a CRLF as one; words between white space, plus one a line.
    """
    pieces = work.spool.pieces(shard.text)
    ids, ends, words_inside = work.encode(shard, pieces)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    documents = starts[pieces.where(OPENS_DOCUMENT)]
    paragraphs = starts[pieces.where(OPENS_PARAGRAPH)]
    record = {
        "tokens": len(ids),
        "documents": len(documents),
        "paragraphs": len(paragraphs),
        "unknown": int(np.count_nonzero(ids == work.tokenizer.unk_id)),
        "characters": sum(map(len, pieces.texts)),
        "bytes": len("".join(pieces.texts).encode()),
        "words": words_inside + len(pieces.where(ENDS_LINE)),
        **counted(pieces.texts),
    }
    if shard.side is not None:  # sentences, whose newlines are not there
        record["line_ends"] = len(documents)
        record["longest"] = int(np.diff(np.append(documents, len(ids))).max())
    output = ShardOutput(folder, record)
    for name, values in {"ids": ids, "documents": documents, "paragraphs": paragraphs}.items():
        save_arrays(output.add(scratch_file(shard, name)), values)
    return output


def scratch_file(shard: TextShard, name: str) -> str:
    """Where a shard leaves its `ids`, `documents` or `paragraphs`."""
    return f"scratch/{name}/{shard.key}.npy"
