"""Settings of `tokenize` and `pack-batches`."""

import re
from math import isclose
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from stages.config import Spelling, StageConfig
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
"""Types of the largest vocabulary: about ten times the words of the largest corpora. Its weights
would fit no machine."""
LARGEST_RECORD = 256 * 10**6
"""Bytes of the longest line of `.jsonl`, or text of a row, that is read. Memory holds up to three
copies of it.
"""
TEXT = "text"
"""Default column or field that holds the text."""

Documents = Literal["file", "line", "blank-line", "wikitext", "jsonl"]
Records = Literal["labels", "spans", "answers", "text"]
Share = Annotated[float, Field(gt=0, lt=1)]


Auto = BeforeValidator(lambda value: None if value == "auto" else value)
"""`auto` is None: left to `Tokenize.resolve`."""
NUMBER = Spelling("N|auto")


class TokenizeConfig(StageConfig):
    """How text becomes a stream of token ids."""

    not_identity: ClassVar[frozenset[str]] = frozenset({"max_record_bytes", "column", "files"})
    not_options: ClassVar[frozenset[str]] = frozenset({"task_names"})
    """The role of an input file says which of its columns is read."""

    tokenizer: Annotated[str, Spelling("bpe|word|char|byte|FILE.json|TOKENS|MODEL")] = "bpe"
    """Tokenizer: learnt from train (bpe, word, char), made of bytes (byte), or `given`: read from a
    file, other tokens, or a pretrained model (a folder, FILE.gguf or hf:NAME)."""
    vocab_size: Annotated[
        Annotated[int, Field(gt=0, le=LARGEST_VOCABULARY)] | None, Auto, NUMBER
    ] = None
    """Size of the vocabulary, special tokens included; None: auto: 512 to 32,768 for bpe, by the
    size of the text; 8,192 for sentence pairs; else all types of train."""
    min_count: Annotated[Annotated[int, Field(gt=0, le=2**62)] | None, Auto, NUMBER] = None
    """Words that are rarer in train become <unk>; None: auto: 1 if the text has <unk> already, else
    2.
    """
    eos: Annotated[str | None, Spelling("TOKEN")] = None
    """Token that ends a document for a pretrained model; None: <|endoftext|>, or the tokenizer's
    own.
    """
    lowercase: bool = False
    """Convert the text to lower case first."""
    documents: Documents | None = None
    """Unit of a document: a file, a line, the lines up to a blank line, a WikiText article ( =
    Title = ), or a JSON record on a line; None: a record of .jsonl, a row of .parquet, .arrow, .csv and
    .tsv, a topic of pydocs, else a file."""
    split: Annotated[tuple[Share, ...] | None, Spelling("A,B[,C]")] = None
    """Shares of train, valid and test of FILES, cut between documents; None: 0.9,0.05,0.05."""
    column: Annotated[str | None, Field(min_length=1), Spelling("NAME")] = None
    """Column (.parquet, .arrow, .csv, .tsv) or field (.jsonl) that holds the text; None: text."""
    tasks: bool = False
    """Each of FILES is the folder of a task, and gives the task its name. It holds train.jsonl, and
    may hold valid.jsonl and test.jsonl. Their records have a text and the fields of `records`."""
    records: Records = "labels"
    """With --tasks: besides its text a record has a label, an answer from the text (spans), a free
    answer (answers), or nothing (text); with an answer also a question, and a dialogue whose turns
    follow each other."""
    label: Annotated[str | None, Field(min_length=1), Spelling("NAME")] = None
    """With --tasks: field with the label of a record; None: label_name, else label."""
    candidates: Annotated[str | None, Field(min_length=1), Spelling("NAME")] = None
    """With --tasks: field with the possible labels of a record; None: all labels."""
    label_groups: Annotated[int | None, Field(gt=1)] = None
    """With --tasks and one folder: number of tasks among which its labels are divided; None: a
    folder is a task.
    """
    task_names: tuple[str, ...] = ()
    """Names of the folders of tasks; follows from FILES."""
    files: Annotated[str | None, Spelling("A-B")] = None
    """Files to read, numbered from 0 in FILES or in the first given split (train), such as 0-9;
    None: all.
    """
    max_record_bytes: Annotated[int, Field(gt=0)] = LARGEST_RECORD
    """Most bytes of a .jsonl record, or of a row's text."""
    source_language: Annotated[
        str | None, Field(min_length=1), Spelling("SUFFIX", flag="source")
    ] = None
    """Suffix of the language to translate from: `--train PREFIX` reads PREFIX.SUFFIX, also .gz, .xz
    or .zst, or both fields of a .jsonl; None: text of one language."""
    target_language: Annotated[
        str | None, Field(min_length=1), Spelling("SUFFIX", flag="target")
    ] = None
    """Suffix of the language to translate into."""

    @property
    def is_aligned(self) -> bool:
        """Whether the text is pairs of sentences."""
        return self.source_language is not None

    @field_validator("tokenizer")
    @classmethod
    def _known_tokenizer(cls, name: str) -> str:
        if name != GIVEN and name not in TOKENIZERS:
            raise UsageError(
                f"There is no tokenizer {name!r}; {did_you_mean(name, TOKENIZERS.names())}"
            )
        return name

    @field_validator("files")
    @classmethod
    def _numbers(cls, files: str | None) -> str | None:
        if files is not None and re.fullmatch(r"[0-9]+(-[0-9]+)?", files) is None:
            raise ValueError(
                "expected the numbers of the first and the last file, counted from 0, as 0-9, or of one"
            )
        return files

    @field_validator("split", mode="before")
    @classmethod
    def _two_or_three(cls, shares: Any) -> Any:
        if isinstance(shares, list | tuple) and len(shares) not in (2, 3):
            raise ValueError(
                "expected two shares, of train and valid, or three, of train, valid and test"
            )
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
    def _records_are_documents(self) -> Self:
        of_labels = self.label or self.label_groups or self.candidates
        if not self.tasks and (of_labels or self.records != "labels"):
            raise ValueError("label, label_groups, candidates and records go with tasks")
        if self.records != "labels" and of_labels:
            raise ValueError(
                f"label, label_groups and candidates are of records with labels, not of records {self.records}"
            )
        unfit = [
            name for name in ("documents", "split", "files") if getattr(self, name) is not None
        ]
        if self.tasks and unfit:
            raise ValueError(
                f"the documents of tasks are the records of their files: leave {', '.join(unfit)} out"
            )
        return self

    @model_validator(mode="after")
    def _fits_tokenizer(self) -> Self:
        smallest = SMALLEST_VOCABULARY.get(self.tokenizer)
        if self.vocab_size is not None and smallest is None:
            raise ValueError(f"the vocabulary of a {self.tokenizer} tokenizer has a fixed size")
        if self.vocab_size is not None and smallest is not None and self.vocab_size < smallest:
            raise ValueError(
                f"a {self.tokenizer} vocabulary has at least {smallest} types, not {self.vocab_size}"
            )
        if self.min_count is not None and self.tokenizer != "word":
            raise ValueError(f"min_count goes with the word tokenizer, not with {self.tokenizer}")
        if self.eos is not None and self.tokenizer != GIVEN:
            raise ValueError("eos goes with the tokenizer of a pretrained model")
        if self.lowercase and self.tokenizer == GIVEN:
            raise ValueError(
                "lowercase does not go with a given tokenizer, which decides by itself"
            )
        return self

    @model_validator(mode="after")
    def _two_languages(self) -> Self:
        languages = self.source_language, self.target_language
        if languages == (None, None):
            return self
        if None in languages:
            raise ValueError(
                "a source needs a target, and a target a source: give --source and --target"
            )
        if languages[0] == languages[1]:
            raise ValueError(f"source and target are both {languages[0]!r}: name two languages")
        for name in ("documents", "split", "column", "files"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} does not go with --source and --target: their documents are lines of a split"
                )
        return self


APART = 16
"""Segments of a forward batch in the presets of two cores."""

Count = Annotated[int, Field(gt=0)]


class PackConfig(StageConfig):
    """Settings of pack-batches."""

    segment_length: Count = 128
    """L, tokens of a segment; segments start at multiples of L in the split."""
    k: Count = 20
    """Matches of a segment among which its successor is looked for."""
    bm25: Literal["lucene", "okapi"] = "lucene"
    """Lucene's BM25 (k1 0.9, b 0.4), or rank-bm25's BM25Okapi (k1 1.5, b 0.75, epsilon 0.25)."""
    engine: Literal["fast", "rank-bm25"] = "fast"
    """Engine that finds the matches: fast, our own, or the package rank-bm25, for small texts and
    okapi alone.
    """
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the first segment, and of those that follow where no match is free."""
    exclude: Literal["self", "document"] = "self"
    """Matches that a segment may not have: itself, or those of its document, so that links cross
    documents only, as with a datastore of others."""
    apart: Count = APART
    """With `exclude` document: segments of the chain of which no two share a document, as far as
    there are others.
    """

    @model_validator(mode="after")
    def _apart_needs_documents(self) -> Self:
        if self.apart != APART and self.exclude != "document":
            raise ValueError("apart keeps segments of one document apart: add --exclude document")
        return self

    @model_validator(mode="after")
    def _engine_has_the_formula(self) -> Self:
        if self.engine == "rank-bm25" and self.bm25 != "okapi":
            raise ValueError(
                f"engine rank-bm25 computes bm25 okapi, not {self.bm25}: add --bm25 okapi"
            )
        return self
