"""Settings of the matcher. Free of torch."""

from typing import Literal

from stages.models.heads.classifier_settings import ClassifierSettings


class MatcherSettings(ClassifierSettings):
    """Products with a vector of each label that was learnt; at test these are prototypes."""

    name: Literal["matcher"] = "matcher"  # type: ignore[assignment]
