"""Prepares the shards once: reads all text into a spool, and makes the tokenizer from the part of
train.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import cast

from stages.artifacts.stage import Inputs, Job, Shard
from stages.lineage.corpus import tokenizer_of
from stages.pretrained.tokenizer import read_tokenizer
from stages.text import TOKENIZERS
from stages.text.config import GIVEN, TokenizeConfig
from stages.text.documents import ENDS_DOCUMENT, MarkedPiece
from stages.text.huggingface import open_tokenizer
from stages.text.records import read_corpus
from stages.text.spool import (
    Pieces,
    Spool,
    SpoolShard,
    TextRange,
    cut_by_shares,
    whole,
    write_spool,
)
from stages.text.survey import lacks_words
from stages.text.tokenizer import TextTokenizer
from stages.text.tokens import SPLITS
from stages.tokenization.aligned import SIDES, Side, aligned_text, report_pairs
from stages.tokenization.corpora import ONE_CORPUS
from stages.tokenization.sources import (
    TOKENIZER,
    TOKENIZER_FILE,
    given_tokenizer,
    pretrained_tokenizer,
    text_files,
)
from stages.tokenization.tasks import read_tasks, warn_of_similar_labels

SPOOL = "scratch/text"
SCANNED = "read"
"""Key of the unit of work that reads all text."""
TOKENIZER_MADE = "tokenizer"
LONG = 2**24
"""Characters of an uncut shard above which a warning states its cost in memory."""
BYTES_A_CHARACTER = 130
"""Bytes of memory per character while a text is encoded at once, with offsets. Measured on 8 and 32
MB of English.
"""


@dataclass(frozen=True)
class TextShard(Shard):
    """Part of the text of one split."""

    split: str
    text: TextRange
    side: Side | None = None
    """Side of the pairs; None: the text is not pairs."""


def spooled_shards(job: Job[TokenizeConfig]) -> list[TextShard]:
    """The shards of every split's text. Reads the text and makes a tokenizer, unless done already
    or made of words.
    """
    spool = Spool(job.folder / SPOOL)
    is_given = job.config.tokenizer == GIVEN
    if is_given and not job.draft.done(TOKENIZER_MADE):
        _make_tokenizer(job, spool, [])  # it decides where documents may be cut
    if not job.draft.done(SCANNED):
        _scan(job, open_tokenizer(job.folder / TOKENIZER_FILE) if is_given else None)
    shards = list(_text_shards(job, spool))
    if not job.draft.done(TOKENIZER_MADE):
        train = [shard.text for shard in shards if shard.split == "train"]
        job.reporter.info(f"making the {job.config.tokenizer} vocabulary from train")
        if job.config.tokenizer != "word":
            _make_tokenizer(job, spool, train)
        elif lacks_words(spool.pieces(train[0]).texts):
            job.reporter.warning(
                "train sets no words apart by spaces, as Chinese, Japanese and Thai do not: the word tokenizer takes "
                "whole phrases for words, and most of another text is <unk>. Take --tokenizer bpe or char."
            )
    return shards


def _scan(job: Job[TokenizeConfig], tokenizer: TextTokenizer | None) -> None:
    """Read the text once into the spool, split after split; `tokenizer`: the given one, if any."""

    def may_end(piece: MarkedPiece, following: MarkedPiece) -> bool:
        # Shards are encoded separately, so a cut is allowed only where no token could span it.
        closed = piece.marks & ENDS_DOCUMENT
        if job.config.is_aligned:
            # A shard counts the tokens of its sentences, so each must be whole.
            return bool(closed)
        return bool(closed) or tokenizer is None or tokenizer.may_cut(piece.text, following.text)

    record: dict[str, list[dict[str, int]]] = {}
    left_out: dict[str, int] = {}

    def write(role: str, pieces: Iterable[MarkedPiece]) -> None:
        first = sum(map(len, record.values()))
        shards = write_spool(pieces, first, lambda name: job.draft.add(f"{SPOOL}/{name}"), may_end)
        record[role] = [asdict(shard) for shard in shards]

    if job.config.tasks:
        # Wrong labels are refused before any work.
        tasks = read_tasks(job.inputs, job.config)
        warn_of_similar_labels(tasks.labels, job.reporter)
    job.reporter.info("reading text")
    for sentence in job.inputs.left_out:
        job.reporter.warning(sentence)
    if job.config.is_aligned:
        for split, pairs in aligned_text(job.inputs, job.config).items():
            for side in SIDES:
                write(f"{split}.{side}", pairs.pieces(side))
            report_pairs(split, pairs, job.reporter)
            left_out[split] = pairs.dropped
    else:
        for role in (ONE_CORPUS, *SPLITS):
            files = text_files(job.inputs, job.config, role)
            if files:
                write(role, read_corpus(files, job.config.documents or "file"))
    longest = max(shard["characters"] for shards in record.values() for shard in shards)
    if longest > LONG:
        job.reporter.warning(
            f"a document of {longest:,} characters stays whole, since a cut would change what this tokenizer makes "
            f"of it: reading it takes some {longest * BYTES_A_CHARACTER / 1e9:.1f} GB of memory. --documents line, "
            "blank-line or wikitext makes several of it."
        )
    job.draft.commit(SCANNED, {"shards": record, "empty_dropped": left_out})


def _text_shards(job: Job[TokenizeConfig], spool: Spool) -> Iterator[TextShard]:
    """The spool's shards; a shard across the border of two splits is divided."""
    scanned = {
        role: [SpoolShard(**s) for s in shards]
        for role, shards in job.draft.record(SCANNED)["shards"].items()
    }
    if ONE_CORPUS in scanned:
        assert job.config.split is not None
        parts = cut_by_shares(spool, scanned[ONE_CORPUS], job.config.split, job.config.documents)
        ranges = dict(zip(SPLITS, parts, strict=False))
    else:
        ranges = {role: whole(shards) for role, shards in scanned.items()}
    for role, inside in ranges.items():
        split, _, side = role.partition(".")
        for count, text in enumerate(inside):
            yield TextShard(
                f"{role.replace('.', '-')}-{count:05d}",
                split,
                text,
                cast("Side | None", side or None),
            )


def _make_tokenizer(job: Job[TokenizeConfig], spool: Spool, train: Sequence[TextRange]) -> None:
    tokenizer = chosen_tokenizer(job.config, job.inputs, map(spool.pieces, train))
    for name in tokenizer.files:
        job.draft.add(name)
    tokenizer.save(job.draft.add(TOKENIZER_FILE))
    job.draft.commit(TOKENIZER_MADE)
    job.draft.flush()


def chosen_tokenizer(
    config: TokenizeConfig, inputs: Inputs, train: Iterable[Pieces]
) -> TextTokenizer:
    """The given tokenizer, or else one made from the text of train."""
    ready_tokenizer = given_tokenizer(inputs)
    pretrained = pretrained_tokenizer(inputs)
    if pretrained is not None:
        return read_tokenizer(pretrained, config.eos)
    if TOKENIZER in inputs:
        return tokenizer_of(inputs[TOKENIZER])
    if ready_tokenizer is not None:
        return open_tokenizer(ready_tokenizer)
    tokenizer: TextTokenizer = TOKENIZERS.load(config.tokenizer).train(
        train, config.vocab_size, config.lowercase, config.min_count or 1
    )
    return tokenizer
