"""Settings of the matcher. Free of torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stages.config import Settings
from stages.models.heads.classifier_settings import Pool


class MatcherSettings(Settings):
    """Products with a vector of each label that was learnt; at test these are prototypes."""

    reads_frozen: ClassVar[bool] = False

    name: Literal["matcher"] = "matcher"
    labels: Annotated[int, Field(gt=0, lt=2**31)]
    """Labels of all tasks, |Y|."""
    pool: Pool = "mean"
