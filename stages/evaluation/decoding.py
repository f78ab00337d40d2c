"""Settings of translations in an evaluation: whether, how, and whether BLEU chooses numbers. Does
not import NumPy.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.evaluation.config import EvaluateConfig
from stages.models.config import BackboneConfig, model_of
from stages.retrieval.reading import Reading
from stages.translation.settings import DecodingSettings

SEARCHED = (
    "translations are searched for with neighbours from an index, or from similar pairs, alone"
)


def searched(readings: Sequence[Reading]) -> bool:
    """Whether a search for translations can read these memories."""
    return all(
        len(reading.sources) == 1 and reading.source_settings[0].searches_steps
        for reading in readings
    )


def resolve_decoding(
    config: EvaluateConfig, readings: Sequence[Reading], read: Mapping[str, Artifact]
) -> dict[str, Any]:
    """Settings of translations for pairs of sentences; none for text of one language.

    Raises: UsageError for options of translations if nothing is translated, or for memory that
    decoding cannot read.
    """
    options = [name for name in DecodingSettings.model_fields if getattr(config, name) is not None]
    by_bleu = config.tune_by == "bleu"
    options += ["tune_by"] if by_bleu else []
    model = model_of(read["model"])
    if not model.reads.source:
        if options:
            option = options[0].replace("_", "-")
            legal = ": tune by perplexity" * (option == "tune-by")
            text = f"{read['tokens'].reference} is text of one language"
            raise UsageError(f"--{option} is of translations, and {text}{legal}.")
        return {}
    readable = searched(readings) and "neighbors" not in read
    if config.beam == 0 and by_bleu:
        raise UsageError("--tune-by bleu translates, and --beam 0 does not: leave one of them out.")
    # unless a beam is asked for, a split that cannot be translated is scored without translations
    if config.beam == 0 or (
        config.beam is None and not by_bleu and not (model.reads.decodes and readable)
    ):
        return {"beam": 0, "length_penalty": None, "max_length": None}
    if not model.reads.decodes:
        raise UsageError(
            f"The backbone {model.backbone} writes no translations: --beam 0 for perplexity without BLEU."
        )
    if not readable:
        raise UsageError(
            f"{SEARCHED.capitalize()}: name an index and external memory, or --beam 0 for perplexity without BLEU."
        )
    from stages.evaluation.figures.bleu import require_sacrebleu

    require_sacrebleu(config.bleu)
    if by_bleu and (problem := _no_small_grid(readings)) is not None:
        raise UsageError(
            f"--tune-by bleu: {problem}. It translates once a point, at most {MOST_POINTS}, of one reading's lists: "
            "--memory external:k=8/16,temperature=10/100,lambda=0.4/0.6/0.8."
        )
    return dict(config.decoding)


def why_no_bleu(config: EvaluateConfig, model: BackboneConfig) -> str | None:
    """The reason why a split of pairs is scored without translations; None if it is translated, or
    has no pairs.
    """
    if config.beam != 0:
        return None
    if not model.reads.decodes:
        return f"the backbone {model.backbone} writes no translations"
    return None if searched(config.readings) else f"{SEARCHED}; --memory knn-mt of an index is"


MOST_POINTS = 32


def _no_small_grid(readings: Sequence[Reading]) -> str | None:
    """The reason why completed readings are not a small grid of one reading; None if they are."""
    if len(readings) > 1:
        return f"{len(readings)} readings stand on top of each other"
    if not any(reading.choices for reading in readings):
        return "nothing is tuned"
    (reading,) = readings
    open_names = []
    num_points = 1
    for name in reading.tunable:
        value = reading.value(name)
        if isinstance(value, str):
            open_names.append(name)
        elif isinstance(value, tuple):
            num_points *= len(value)
    if open_names:
        return f"{' and '.join(open_names)} of {'+'.join(reading.sources)} is no list of numbers"
    return f"{num_points:,} points are too many" if num_points > MOST_POINTS else None
