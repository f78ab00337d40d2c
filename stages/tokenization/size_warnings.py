"""Warnings about vocabularies and splits that are too large, too small, alike, or of different form."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.numbers import joined
from stages.reporting import Reporter
from stages.text.form import DIFFER_IN_FORM, differences, form_words
from stages.text.tokenizer import MANY_TYPES, vocabulary_cost

FEW_TOKENS = 10_000
"""A split with fewer tokens allows only a rough measurement, or a rough model."""
UNKNOWN = 0.01
"""Share of unknown tokens above which a perplexity is misleading."""
MORE_TEXT = "give more text, or give this split a larger share (--split)"
"""Advice that makes a split larger."""
MANY_PARAGRAPHS = 1000
"""Number of paragraphs that a single article or story does not reach."""
WIDTH, LAYERS = 512, 8
"""Sizes of the model for which a message states the cost of a vocabulary."""


def warn_of_size(types: int, reporter: Reporter) -> None:
    """Warn of a vocabulary of many types."""
    if types > MANY_TYPES:
        weights = types * WIDTH
        cost = vocabulary_cost(weights, weights, LAYERS * 12 * WIDTH**2)
        reporter.warning(
            f"the vocabulary has {types:,} types: training a Transformer of {LAYERS} layers of width {WIDTH}, it takes "
            f"{cost}. --tokenizer bpe, --vocab-size or --min-count make it smaller; a model may have adaptive softmax."
        )


def warn_of_shared_files(shared: Mapping[tuple[str, ...], Sequence[str]], reporter: Reporter) -> None:
    """Warn of files that are in several splits."""
    for splits, paths in shared.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        known = "that was learned" if "train" in splits else "on which all was tuned"
        reporter.warning(
            f"{joined(splits)} hold the same text, {paths[0]}{more}: what is measured on text {known} says nothing of "
            "other text"
        )


def hint_at_documents(splits: Mapping[str, Mapping[str, Any]], reporter: Reporter) -> None:
    """Explain how to make documents of lines or paragraphs, if a split is one document of many paragraphs."""
    for split, figures in splits.items():
        if figures["documents"] == 1 and figures["paragraphs"] >= MANY_PARAGRAPHS:
            reporter.info(
                f"{split} is 1 document of {figures['paragraphs']:,} paragraphs; where each line or paragraph stands "
                "for itself, as captions and articles do, --documents line or blank-line makes it a document"
            )
            return


def warn_of_form(splits: Mapping[str, Mapping[str, Any]], reporter: Reporter) -> None:
    """Warn of splits that differ from train in form."""
    phrases = [
        phrase
        for split, figures in splits.items()
        if split != "train" and "train" in splits
        for phrase in differences(split, splits["train"], figures)
    ]
    if phrases:
        reporter.warning(DIFFER_IN_FORM.format(**form_words(phrases)))


def warn_of_unknown(splits: Mapping[str, Mapping[str, Any]], reporter: Reporter) -> None:
    """Warn of splits with many unknown tokens."""
    for split, figures in splits.items():
        if figures["unknown_rate"] > UNKNOWN:
            reporter.warning(
                f"{figures['unknown_rate']:.1%} of the tokens of {split} are <unk>, which is easier to guess than the "
                "words that it stands for: --tokenizer bpe has none, --min-count 1 fewer"
            )


def report_shares(splits: Mapping[str, dict[str, Any]], reporter: Reporter) -> None:
    """Add the share of the text to the figures of each split; warn of small splits."""
    total = sum(figures["characters"] for figures in splits.values())
    for split, figures in splits.items():
        figures["share"] = figures["characters"] / total
        if figures["tokens"] < FEW_TOKENS:
            rough = "too few to learn much from" if split == "train" else "so that what is measured there is rough"
            few = f"{split} has only {figures['tokens']:,} tokens, below {FEW_TOKENS:,}, {rough}"
            reporter.warning(f"{few}: {MORE_TEXT}")
