"""What is said of vocabularies and splits that are larger or smaller than is good for them."""

from collections.abc import Mapping
from typing import Any

from stages.numbers import size as bytes_size
from stages.reporting import Reporter

FEW_TOKENS = 10_000
"""A split with fewer is too small to measure or to learn from."""
MANY_TYPES = 2**16
"""A vocabulary with more costs more than most models of its text."""


def warn_of_size(types: int, reporter: Reporter) -> None:
    """Warn of a vocabulary of many types."""
    if types > MANY_TYPES:
        reporter.warning(
            f"the vocabulary has {types:,} types: a model of width 512 takes {types * 512 / 1e6:,.0f} million weights "
            f"for it, and the scores of 4,096 tokens take {bytes_size(4096 * 4 * types)}. "
            "--tokenizer bpe, --vocab-size or --min-count make it smaller; a model may have adaptive softmax."
        )


def report_shares(splits: Mapping[str, dict[str, Any]], reporter: Reporter) -> None:
    """Say, and add to the figures of splits, which share of the text each got; warn of small ones."""
    total = sum(figures["characters"] for figures in splits.values())
    for split, figures in splits.items():
        figures["share"] = figures["characters"] / total
        reporter.info(f"{split}: {figures['share']:.1%} of the text, {figures['documents']:,} documents")
        if figures["tokens"] < FEW_TOKENS:
            reporter.warning(f"{split} has only {figures['tokens']:,} tokens")
