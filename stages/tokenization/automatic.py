"""Settings that are left to `auto`: chosen from the text, and said."""

from pathlib import Path
from typing import Any

from stages.artifacts.stage import Inputs
from stages.numbers import size as bytes_size
from stages.reporting import Reporter
from stages.text.config import DEFAULT_SHARES, GIVEN, TokenizeConfig
from stages.text.records import TextFile
from stages.text.survey import bpe_vocabulary, holds_unknown, text_bytes
from stages.tokenization.aligned import vocabulary_settings
from stages.tokenization.corpora import ONE_CORPUS
from stages.tokenization.sources import columns_read, given_tokenizer, pretrained_tokenizer, text_files


def resolve_automatic(config: TokenizeConfig, inputs: Inputs, reporter: Reporter) -> dict[str, Any]:
    """The settings that these inputs decide, by name."""
    columns = columns_read(inputs)
    alone = len(columns) == 1 and not config.is_aligned
    changes: dict[str, Any] = {"column": columns.pop() if alone else None}
    if config.tasks:
        changes["task_names"] = tuple(Path(file.path).parent.name for file in text_files(inputs, config, "train"))
    if config.split is None and text_files(inputs, config, ONE_CORPUS):
        changes["split"] = DEFAULT_SHARES
    if given_tokenizer(inputs) is not None or pretrained_tokenizer(inputs) is not None:
        changes["tokenizer"] = GIVEN
        return changes
    if config.is_aligned:
        return changes | vocabulary_settings(config)
    files = text_files(inputs, config, "train", ONE_CORPUS)
    if config.tokenizer == "bpe" and config.vocab_size is None:
        shares = changes.get("split", config.split)
        changes["vocab_size"] = _chosen_vocabulary(files, shares[0] if shares else 1.0, reporter)
    elif config.tokenizer == "word" and config.min_count is None:
        changes["min_count"] = _chosen_min_count(files, reporter)
    return changes


def _chosen_vocabulary(files: list[TextFile], share: float, reporter: Reporter) -> int:
    """Types of a bpe vocabulary for a share of the text in some files."""
    size = share * text_bytes(files)
    types = bpe_vocabulary(size)
    reporter.info(f"a bpe vocabulary of {types:,} types, for {bytes_size(size)} of training text")
    return types


def _chosen_min_count(files: list[TextFile], reporter: Reporter) -> int:
    if holds_unknown(files):
        reporter.info("every word is kept: the text has <unk> in place of rare ones already (--min-count 1)")
        return 1
    reporter.info("words that train has only once become <unk>, so that it is learnt (--min-count 2)")
    return 2
