"""Rules of weight policies: the readings for which each is valid. Free of torch."""

from typing import ClassVar

from stages.errors import UsageError
from stages.retrieval.reading import Reading, WeightRule


class MatchesOnly(WeightRule):
    """Sources whose scores are lengths of matches."""

    def check(self, reading: Reading) -> None:
        if not all(settings.scores_are_lengths for settings in reading.source_settings):
            raise ValueError(
                f"{reading.weight_name}={reading.weight} is of exact and exact-stream: only they "
                "find matches"
            )


class SquaredDistances(WeightRule):
    """Sources whose keys are compared by squared distance."""

    def check_resolved(self, reading: Reading) -> None:
        if reading.comparison.similarity != "l2":
            raise UsageError(
                f"{reading.spelled}: {reading.weight_name}={reading.weight} is of keys that are "
                "compared by l2."
            )


class PlannedSearches(WeightRule):
    """All sources; it also learns which tokens to search for."""

    plans_searches: ClassVar[bool] = True
