"""Stage tokenize: text -> tokens.

The text is read once, streaming, into a spool of shards of a fixed size (about 1 MB); the tokenizer is made from
train's shards; then each shard is encoded on its own, and the ids of each split are put together in whole rows.
Memory in use is one shard and the vocabulary, whatever the corpus; the disk holds the text and its ids twice
until the artifact is published.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, InputFile, Inputs, Job, Shard, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.errors import DataError, UsageError
from stages.lineage.corpus import tokenizer_of
from stages.numbers import size as bytes_size
from stages.text import TOKENIZERS
from stages.text.config import DEFAULT_SHARES, GIVEN, UNTRAINED, TokenizeConfig
from stages.text.tokens import SPLITS

if TYPE_CHECKING:
    from stages.text.records import TextFile
    from stages.text.spool import Pieces, Spool
    from stages.text.tokenizer import TextTokenizer

__all__ = ["Tokenize", "TokenizeConfig"]

ONE_CORPUS = "source"
"""Role of files that are not given by split."""
FEW_TOKENS = 10_000
"""A split with fewer is too small to measure or to learn from."""
MANY_TYPES = 2**16
"""A vocabulary with more costs more than most models of its text."""
ROW_BYTES = 2**21
"""Of one array in one Zarr shard: few, so that a corpus of any size takes the memory that a small one takes."""
SPOOL = "scratch/text"
SCAN = "read"
TOKENIZER = "tokenizer"
TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True)
class TextShard(Shard):
    """Pieces [start, stop) of a spool shard, all of one split."""

    split: str
    number: int
    start: int
    stop: int


@dataclass(frozen=True)
class Plan:
    """The pieces of the spool, all of the text."""

    shards: list[TextShard]


@dataclass(frozen=True)
class Work:
    """What reading the spool takes."""

    spool: "Spool"
    tokenizer: "TextTokenizer"


class Tokenize(ShardedStage[TokenizeConfig, Plan, Work, TextShard]):
    """Text files in, ids in Zarr and a `tokenizer.json` out."""

    kind = "tokens"
    Config = TokenizeConfig

    def inputs(self, config: TokenizeConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        """Find and hash the text files, and the tokenizer if one is given.

        Args:
            config: see TokenizeConfig.
            references: `source` (files to be split) or `train`, `valid`, `test`, each a list of files, directories
                or `builtin:pydocs`; `tokenizer`, a `tokenizer.json` or a tokens artifact.
            store: where tokens artifacts are.
        """
        roles = _given_roles(config, references)
        tokenizer = references.get("tokenizer")
        _check_vocabulary_source(config, roles, tokenizer)
        files = [_input_file(role, path) for role in roles for path in _paths(references[role])]
        if tokenizer is None:
            return Inputs(files=tuple(files))
        if tokenizer.endswith(".json"):
            return Inputs(files=(*files, InputFile(TOKENIZER, tokenizer, _digest(tokenizer))))
        return Inputs({TOKENIZER: store.get(tokenizer, "tokens")}, tuple(files))

    def resolve(self, config: TokenizeConfig, inputs: Inputs, execution: Execution) -> TokenizeConfig:
        changes: dict[str, Any] = {}
        if _of(ONE_CORPUS, inputs.files[0]) and config.split is None:
            changes["split"] = DEFAULT_SHARES
        if _given_tokenizer(inputs) is not None:
            changes["tokenizer"] = GIVEN
        elif config.tokenizer == "bpe" and config.vocab_size is None:
            shares = changes.get("split", config.split)
            changes["vocab_size"] = _chosen_vocabulary(config, inputs, shares[0] if shares else 1.0, execution)
        elif config.tokenizer == "word" and config.min_count is None:
            changes["min_count"] = _chosen_min_count(config, inputs, execution)
        return config.model_copy(update=changes)

    def plan(self, job: Job[TokenizeConfig]) -> Plan:
        from stages.text.spool import Spool

        spool = Spool(job.folder / SPOOL)
        if not job.draft.done(SCAN):
            _scan(job)
        shards = list(_text_shards(job, spool))
        if not job.draft.done(TOKENIZER):
            _make_tokenizer(job, spool, shards)
        return Plan(shards)

    def shards(self, job: ShardJob[TokenizeConfig], plan: Plan) -> list[TextShard]:
        return plan.shards

    def open(self, job: ShardJob[TokenizeConfig], plan: Plan) -> Work:
        from stages.text.given import open_tokenizer
        from stages.text.spool import Spool

        return Work(Spool(job.folder / SPOOL), open_tokenizer(job.folder / TOKENIZER_FILE))

    def run_shard(self, job: ShardJob[TokenizeConfig], work: Work, shard: TextShard) -> ShardOutput:
        from stages.text.documents import OPENS_DOCUMENT, OPENS_PARAGRAPH

        pieces = work.spool.pieces(shard.number, shard.start, shard.stop)
        ids, ends = work.tokenizer.encode(pieces)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        documents = starts[pieces.where(OPENS_DOCUMENT)]
        paragraphs = starts[pieces.where(OPENS_PARAGRAPH)]
        record = {
            "tokens": len(ids),
            "documents": len(documents),
            "paragraphs": len(paragraphs),
            "unknown": int(np.count_nonzero(ids == work.tokenizer.unk_id)),
            **_text_size(pieces),
        }
        output = ShardOutput(job.folder, record)
        for name, values in {"ids": ids, "documents": documents, "paragraphs": paragraphs}.items():
            np.save(output.add(_scratch_file(shard, name)), values)
        return output

    def finish(self, job: Job[TokenizeConfig], plan: Plan) -> dict[str, Any]:
        work = self.open(job, plan)
        records = {shard.key: job.draft.record(shard.key) for shard in plan.shards}
        paragraphs = documents = 0
        splits: dict[str, dict[str, Any]] = {}
        for split in SPLITS:
            shards = [shard for shard in plan.shards if shard.split == split]
            if shards:
                parts = [records[shard.key] for shard in shards]
                splits[split] = _split_metrics(split, parts)
                _assemble(job, work, shards, parts, paragraphs)
                _write_names(job, work, split, range(documents, documents + splits[split]["documents"]))
                paragraphs += splits[split]["paragraphs"]
                documents += splits[split]["documents"]
        _warn_of_size(job, work.tokenizer.vocabulary_size)
        if job.config.split is not None:
            _tell_shares(job, splits)
        return {
            "splits": splits,
            "vocabulary_size": work.tokenizer.vocabulary_size,
            "eos_id": work.tokenizer.eos_id,
            "unk_id": work.tokenizer.unk_id,
            "tokenizer": work.tokenizer.kind if job.config.tokenizer == GIVEN else job.config.tokenizer,
            "eos_after": work.tokenizer.eos_after,
        }


# What is read


def _given_roles(config: TokenizeConfig, references: Mapping[str, Any]) -> list[str]:
    """`source`, or the splits that files are named for."""
    splits = [split for split in SPLITS if references.get(split)]
    if references.get(ONE_CORPUS) and splits:
        raise UsageError(f"Files are named both alone and for {splits[0]}: name them one way or the other.")
    if config.split is not None and splits:
        raise UsageError("Shares of a split are for files named alone; these are named by split already.")
    if not references.get(ONE_CORPUS) and not splits:
        raise UsageError("Which text? Name files or directories, builtin:pydocs, or --train, --valid, --test.")
    return splits or [ONE_CORPUS]


def _check_vocabulary_source(config: TokenizeConfig, roles: Sequence[str], tokenizer: str | None) -> None:
    if tokenizer is not None and (config.lowercase or config.vocab_size is not None or config.min_count is not None):
        raise UsageError("A given tokenizer has its own vocabulary and letter case: neither can be set.")
    if tokenizer is None and config.tokenizer == GIVEN:
        raise UsageError("Which tokenizer? Name a tokenizer.json or a tokens artifact.")
    trained = tokenizer is None and config.tokenizer not in UNTRAINED
    if trained and "train" not in roles and ONE_CORPUS not in roles:
        raise UsageError(
            f"The vocabulary of the {config.tokenizer} tokenizer comes from train: name its files with --train, "
            "or another tokens artifact with --tokenizer."
        )


def _paths(specs: str | Sequence[str]) -> list[str]:
    from stages.text.files import find_files

    return find_files([specs] if isinstance(specs, str) else specs)


def _digest(path: str) -> str:
    from stages.text.files import file_digest, find_files

    return file_digest(find_files([path])[0])


def _input_file(role: str, path: str) -> InputFile:
    """The role tells what is in the file, since an id covers no file's name."""
    from stages.text.files import format_of

    return InputFile(f"{role}.{format_of(path)}", path, _digest(path))


def _of(role: str, file: InputFile) -> bool:
    return file.role.split(".")[0] == role


def _given_tokenizer(inputs: Inputs) -> Path | None:
    """Where the tokenizer is that was given, if one was."""
    if TOKENIZER in inputs:
        return inputs[TOKENIZER].file(TOKENIZER_FILE)
    return next((Path(file.path) for file in inputs.files if file.role == TOKENIZER), None)


# What is chosen from the text


def _vocabulary_files(config: TokenizeConfig, inputs: Inputs) -> "list[TextFile]":
    """The files that the vocabulary comes from, or is cut from."""
    return [_text_file(file, config) for file in inputs.files if _of("train", file) or _of(ONE_CORPUS, file)]


def _chosen_vocabulary(config: TokenizeConfig, inputs: Inputs, share: float, execution: Execution) -> int:
    from stages.text.automatic import bpe_vocabulary, text_bytes

    size = share * text_bytes(_vocabulary_files(config, inputs))
    types = bpe_vocabulary(size)
    execution.reporter.info(f"a bpe vocabulary of {types:,} types, for {bytes_size(size)} of training text")
    return types


def _chosen_min_count(config: TokenizeConfig, inputs: Inputs, execution: Execution) -> int:
    from stages.text.automatic import holds_unknown

    if holds_unknown(_vocabulary_files(config, inputs)):
        execution.reporter.info("every word is kept: the text has <unk> in place of rare ones already (--min-count 1)")
        return 1
    execution.reporter.info("words that train has only once become <unk>, so that it is learnt (--min-count 2)")
    return 2


# What is done before the shards


def _scan(job: Job[TokenizeConfig]) -> None:
    """Read all text once into the spool, split after split."""
    from stages.text.corpus import read_corpus
    from stages.text.spool import write_spool

    record: dict[str, list[dict[str, int]]] = {}
    documents = job.config.documents or "file"
    job.reporter.info("reading text")
    for role in (ONE_CORPUS, *SPLITS):
        files = [_text_file(file, job.config) for file in job.inputs.files if _of(role, file)]
        if files:
            first = sum(map(len, record.values()))
            pieces = read_corpus(files, documents)
            shards = write_spool(pieces, first, lambda name: job.draft.add(f"{SPOOL}/{name}"))
            record[role] = [asdict(shard) for shard in shards]
    job.draft.commit(SCAN, record)


def _text_file(file: InputFile, config: TokenizeConfig) -> "TextFile":
    from stages.text.files import format_of
    from stages.text.records import TextFile

    format = format_of(file.path)
    format = "jsonl" if format == "txt" and config.documents == "jsonl" else format
    return TextFile(file.path, format, file.digest, config.max_record_bytes)


def _text_shards(job: Job[TokenizeConfig], spool: "Spool") -> Iterator[TextShard]:
    """The spool's shards, those that a split cuts through in parts."""
    from stages.text.splits import cut_by_shares, whole
    from stages.text.spool import SpoolShard

    scanned = {role: [SpoolShard(**s) for s in shards] for role, shards in job.draft.record(SCAN).items()}
    if ONE_CORPUS in scanned:
        assert job.config.split is not None
        parts = cut_by_shares(spool, scanned[ONE_CORPUS], job.config.split)
        ranges = dict(zip(SPLITS, parts, strict=False))
    else:
        ranges = {split: whole(shards) for split, shards in scanned.items()}
    for split, inside in ranges.items():
        for count, r in enumerate(inside):
            yield TextShard(f"{split}-{count:05d}", split, r.number, r.start, r.stop)


def _make_tokenizer(job: Job[TokenizeConfig], spool: "Spool", shards: Sequence[TextShard]) -> None:
    from stages.text.given import open_tokenizer

    config, given = job.config, _given_tokenizer(job.inputs)
    if TOKENIZER in job.inputs:
        tokenizer = tokenizer_of(job.inputs[TOKENIZER])
    elif given is not None:
        tokenizer = open_tokenizer(given)
    else:
        train = [shard for shard in shards if shard.split == "train"]
        if config.tokenizer == "word":
            _warn_of_script(job, spool.pieces(train[0].number, train[0].start, train[0].stop))
        texts = (spool.pieces(shard.number, shard.start, shard.stop) for shard in train)
        job.reporter.info(f"making the {config.tokenizer} vocabulary from train")
        tokenizer = TOKENIZERS.load(config.tokenizer).train(
            texts, config.vocab_size, config.lowercase, config.min_count or 1
        )
    tokenizer.save(job.draft.add(TOKENIZER_FILE))
    job.draft.commit(TOKENIZER)
    job.draft.flush()


def _warn_of_script(job: Job[TokenizeConfig], beginning: "Pieces") -> None:
    from stages.text.scripts import lacks_words

    if lacks_words(beginning.texts):
        job.reporter.warning(
            "train sets no words apart by spaces, as Chinese, Japanese and Thai do not: the word tokenizer takes whole "
            "phrases for words, and most of another text is <unk>. Take --tokenizer bpe or char."
        )


# What is left by the shards, and put together


def _scratch_file(shard: TextShard, name: str) -> str:
    return f"scratch/{name}/{shard.key}.npy"


def _text_size(pieces: "Pieces") -> dict[str, int]:
    """Characters and bytes as read, newlines included; words between white space, plus one a line."""
    from stages.text.documents import ENDS_LINE
    from stages.text.vocabulary import words

    return {
        "characters": sum(map(len, pieces.texts)),
        "bytes": sum(len(text.encode()) for text in pieces.texts),
        "words": sum(len(words(text)) for text in pieces.texts) + len(pieces.where(ENDS_LINE)),
    }


def _split_metrics(split: str, parts: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    names = ("tokens", "documents", "paragraphs", "characters", "bytes", "words")
    sums: dict[str, Any] = {name: sum(part[name] for part in parts) for name in names}
    if not sums["tokens"]:
        raise DataError(f"The tokenizer makes no token of the text of {split}.")
    sums["unknown_rate"] = sum(part["unknown"] for part in parts) / sums["tokens"]
    return sums


def _assemble(
    job: Job[TokenizeConfig],
    work: Work,
    shards: Sequence[TextShard],
    records: Sequence[Mapping[str, int]],
    paragraphs_before: int,
) -> None:
    """Write the arrays of one split in whole rows.

    `paragraphs_before` is how many paragraphs the spool has before this split.
    """
    from stages.text.concatenation import Concatenation, Part, saved

    tokens = [0, *accumulate(record["tokens"] for record in records)]

    def gather(name: str, count: str, shifts: Sequence[int]) -> list[Part]:
        files = [job.draft.path / _scratch_file(shard, name) for shard in shards]
        return [saved(f, r[count], s) for f, r, s in zip(files, records, shifts, strict=True)]

    end = Part(1, lambda: np.array([tokens[-1]]))
    ids = Concatenation(gather("ids", "tokens", [0] * len(shards)))
    documents = Concatenation([*gather("documents", "documents", tokens[:-1]), end])
    paragraphs = Concatenation([*gather("paragraphs", "paragraphs", tokens[:-1]), end])
    last = len(paragraphs) - 1

    def ends(a: int, b: int) -> np.ndarray:
        return paragraphs.read(a + 1, b + 1)

    def hashes(a: int, b: int) -> np.ndarray:
        return work.spool.hashes(paragraphs_before + a, paragraphs_before + b)

    split = shards[0].split
    _write_array(job, f"{split}/ids", len(ids), work.tokenizer.dtype, ids.read)
    _write_array(job, f"{split}/doc_offsets", len(documents), np.dtype(np.int64), documents.read)
    _write_array(job, f"{split}/paragraph_ends", last, np.dtype(np.int64), ends)
    _write_array(job, f"{split}/paragraph_hashes", last, np.dtype(np.uint64), hashes)


def _write_array(
    job: Job[TokenizeConfig], name: str, rows: int, dtype: np.dtype, read: Callable[[int, int], np.ndarray]
) -> None:
    array = job.draft.array(f"tokens.zarr/{name}", (rows,), dtype, ROW_BYTES // dtype.itemsize)
    for shard in range(array.shards):
        key = f"{name.replace('/', '-')}-{shard:05d}"
        if not job.draft.done(key):
            inside = array.rows(shard)
            array.write(shard, read(inside.start, inside.stop).astype(dtype, copy=False))
            job.draft.commit(key)


def _write_names(job: Job[TokenizeConfig], work: Work, split: str, documents: range) -> None:
    """Keep the names of a split's documents, given by their numbers in the spool."""
    from stages.text.names import names_file

    with job.draft.add(names_file(split)).open("w", encoding="utf-8") as file:
        file.writelines(run.dumps() for run in work.spool.names(documents.start, documents.stop))


def _warn_of_size(job: Job[TokenizeConfig], types: int) -> None:
    if types > MANY_TYPES:
        job.reporter.warning(
            f"the vocabulary has {types:,} types: a model of width 512 takes {types * 512 / 1e6:,.0f} million weights "
            f"for it, and the scores of 4,096 tokens take {bytes_size(4096 * 4 * types)}. "
            "--tokenizer bpe, --vocab-size or --min-count make it smaller; a model may have adaptive softmax."
        )


def _tell_shares(job: Job[TokenizeConfig], splits: Mapping[str, dict[str, Any]]) -> None:
    """Say, and add to the metrics, which share of the text each split got; warn of small ones."""
    total = sum(metrics["characters"] for metrics in splits.values())
    for split, metrics in splits.items():
        metrics["share"] = metrics["characters"] / total
        job.reporter.info(f"{split}: {metrics['share']:.1%} of the text, {metrics['documents']:,} documents")
        if metrics["tokens"] < FEW_TOKENS:
            job.reporter.warning(f"{split} has only {metrics['tokens']:,} tokens")
