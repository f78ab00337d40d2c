"""A vocabulary of words, made shard by shard: the text of train is split into words once, counted, and then encoded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Shard
from stages.text.config import TokenizeConfig
from stages.text.documents import ENDS_LINE
from stages.text.spool import Spool
from stages.text.word import SplitText, WordTokenizer
from stages.tokenization.sources import TOKENIZER_FILE
from stages.tokenization.spooling import TOKENIZER_MADE, TextShard


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
