"""Warnings about vocabularies and splits that are too large, too small, alike, or of different
form.
"""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Inputs
from stages.numbers import joined
from stages.reporting import Reporter
from stages.text.config import TokenizeConfig
from stages.text.form import DIFFER_IN_FORM, differences, form_words
from stages.text.tokens import SPLITS
from stages.text.vocabulary_cost import MANY_TYPES, vocabulary_cost

FEW_TOKENS = 10_000
"""A split with fewer tokens allows only a rough measurement, or a rough model."""
UNKNOWN = 0.01
"""Share of unknown tokens above which a perplexity is misleading."""
MANY_PARAGRAPHS = 1000
"""Number of paragraphs that a single article or story does not reach."""
WIDTH = 512
LAYERS = 8
"""Sizes of the model for which a message states the cost of a vocabulary."""


def warn_of_shared_files(inputs: Inputs, reporter: Reporter) -> None:
    """Warn of files of the same content in several splits."""
    # splits and path of each file, by content
    uses_of_content = dict[str, list[tuple[str, str]]]()
    for file in inputs.files:
        split = file.role.split(".")[0]
        if split in SPLITS:
            uses_of_content.setdefault(file.digest, []).append((split, file.path))

    # one warning for all files of the same splits
    paths_of_splits = dict[tuple[str, ...], list[str]]()
    for uses in uses_of_content.values():
        splits = tuple(dict.fromkeys(split for split, _ in uses))
        _, first_path = uses[0]
        paths_of_splits.setdefault(splits, []).append(first_path)

    for splits, paths in paths_of_splits.items():
        if len(splits) > 1:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            what = "that was learned" if "train" in splits else "on which all was tuned"
            reporter.warning(
                f"{joined(splits)} hold the same text, {paths[0]}{more}: what is measured on text {what} says nothing "
                "of other text"
            )


def report_figures(
    config: TokenizeConfig, types: int, splits: Mapping[str, dict[str, Any]], reporter: Reporter
) -> None:
    """Warn of a vocabulary of many types, and of splits that differ in form, are small or have
    unknown tokens.

    Adds the share of the text to the figures of each split, if shares were given.
    """
    if types > MANY_TYPES:
        weights = types * WIDTH
        cost = vocabulary_cost(weights, weights, LAYERS * 12 * WIDTH**2)
        reporter.warning(
            f"the vocabulary has {types:,} types: training a Transformer of {LAYERS} layers of width {WIDTH}, it takes "
            f"{cost}. --tokenizer bpe, --vocab-size or --min-count make it smaller; a model may have adaptive softmax."
        )
    others = {
        split: figures
        for split, figures in splits.items()
        if split != "train" and "train" in splits
    }
    phrases = [
        phrase
        for split, split_figures in others.items()
        for phrase in differences(split, splits["train"], split_figures)
    ]
    if phrases:
        reporter.warning(DIFFER_IN_FORM.format(**form_words(phrases)))
    for split, figures in splits.items():
        if figures["unknown_rate"] > UNKNOWN:
            reporter.warning(
                f"{figures['unknown_rate']:.1%} of the tokens of {split} are <unk>, which is easier to guess than the "
                "words that it stands for: --tokenizer bpe has none, --min-count 1 fewer"
            )
    if config.documents is None and not config.is_aligned:
        for split, figures in splits.items():
            if figures["documents"] == 1 and figures["paragraphs"] >= MANY_PARAGRAPHS:
                reporter.info(
                    f"{split} is 1 document of {figures['paragraphs']:,} paragraphs; where each line or paragraph "
                    "stands for itself, as captions and articles do, --documents line or blank-line makes it a document"
                )
                break
    if config.split is not None:
        total = sum(figures["characters"] for figures in splits.values())
        for split, figures in splits.items():
            figures["share"] = figures["characters"] / total
            if figures["tokens"] < FEW_TOKENS:
                rough = (
                    "too few to learn much from"
                    if split == "train"
                    else "so that what is measured there is rough"
                )
                reporter.warning(
                    f"{split} has only {figures['tokens']:,} tokens, below {FEW_TOKENS:,}, {rough}: give more text, or "
                    "give this split a larger share (--split)"
                )
