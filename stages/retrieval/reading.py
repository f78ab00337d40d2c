"""One reading of a memory with all its settings, checked; and the settings that every source has.
Free of torch.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainSerializer, SerializeAsAny, model_validator

from stages.artifacts.artifact import Artifact
from stages.config import Settings
from stages.memory.hyperparameter import (
    Choice,
    Hyperparameter,
    ReadingOptions,
    spelled_value,
)
from stages.memory.readers import READERS
from stages.memory.readers.settings import ReaderSettings
from stages.registry import Part, near_part
from stages.retrieval.memory_input import MemoryInput
from stages.retrieval.registries import WEIGHTS, weights_by_name

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
TEMPERATURE = Hyperparameter(
    "τ", "temperature τ", means="divides scores: the larger, the less the nearest count"
)
THETA = Hyperparameter("θ", means="multiplies scores: the larger, the more the nearest count")
Similarity = Literal["dot", "scaled-dot", "l2"]


MEANS = {
    "dot": "scores are inner products",
    "scaled-dot": "scores are inner products, divided by the square root of their dimensions",
    "l2": "scores are minus the squared distance",
    "hidden": "compared are the hidden states that the next token is predicted from",
    "ffn-input": "compared is what enters the last feed-forward layer",
}
"""Legal values of `similarity` and `key`."""


class Comparison(ReadingOptions):
    """How a position finds entries alike."""

    similarity: Similarity | None = None
    """None: `scaled-dot` for a model trained by `trime*`; else the metric of the index, or `dot`
    without one.
    """
    key: Literal["hidden", "ffn-input"] | None = None
    """None: the key of the datastore; without one that of its training for `trime*`, else `hidden`.
    """
    temperature: Annotated[Choice[Positive] | None, TEMPERATURE] = None
    """τ: scores are divided by it."""
    theta: Annotated[Choice[NotNegative] | None, THETA] = None
    """θ = 1/τ: scores are multiplied by it; 0 makes all entries equal."""


Past = Literal["stream", "document"]
"""Extent of earlier tokens that may be read: back to the beginning of the split, or of the
document.
"""


class SourceSettings(ReadingOptions):
    """Keys of a source, their meaning in reports, and the inputs that it reads."""

    word: ClassVar[str] = "memory"
    """Name of the source for people."""
    means: ClassVar[str] = ""
    """Meaning of its entries."""
    amount: ClassVar[str]
    """Quantity that its cut-offs count: one of its keys, or a name in `reported`."""
    reported: ClassVar[Mapping[str, Hyperparameter]] = {}
    """Numbers in reports besides those of its keys."""
    reported_as: ClassVar[Mapping[str, str]] = {}
    """Keys with another name in reports."""
    compares_keys: ClassVar[bool] = True
    """Whether it compares representations, by a key and a similarity."""
    scores_are_lengths: ClassVar[bool] = False
    """Whether scores are lengths of matches in tokens, which `lambda=length` reads."""
    reads_windows: ClassVar[bool] = False
    """Whether it depends on where the windows or segments of a split begin."""
    past_amount: ClassVar[str | None] = None
    """Reported number that says how many tokens back it reads; None: none does."""
    reads_datastore: ClassVar[bool] = False
    """Whether it reads the datastore that the command names by an index or neighbors."""
    finds_neighbors: ClassVar[bool] = False
    """Whether its entries are neighbours, found for each token; its amount is their number."""
    quotes: ClassVar[bool] = True
    """Whether its entries have places in a text; a memory that was learned quotes no document."""
    searches: ClassVar[bool] = False
    """Whether it searches stored entries for every token."""
    inputs: ClassVar[tuple[MemoryInput, ...]] = ()
    """Artifacts that it reads besides the model, its tokens and the datastore."""

    @property
    def searched_share(self) -> float:
        """Share of the tuning split's tokens that it searches for."""
        return 1.0

    @property
    def skips_searches(self) -> bool:
        """Whether it does not search for some tokens."""
        return False

    @property
    def hides_rows(self) -> bool:
        """Whether rows of its memory can be hidden while it is open; True if it reads no artifact."""
        return not self.reads_datastore and not self.inputs

    @property
    def searches_steps(self) -> bool:
        """Whether it can be searched at every step of a translation."""
        return False

    def past(self, reset: str) -> Past | None:
        """Extent of the earlier tokens that each token may read; None: none of them.

        Args:
            reset: `document` if windows begin anew at every document, else `none`.
        """
        return None

    def check(self, reading: "Reading") -> None:
        """Refuse keys that do not fit together; by default all do.

        Raises: ValueError if keys of this source do not fit the other keys of its reading.
        """

    def reason_alone(self) -> str | None:
        """Reason why its reading stands alone, in words of a message; None: it need not."""
        return None

    def inputs_read(self, read: Mapping[str, Artifact]) -> list[MemoryInput]:
        """The inputs that a reading needs, by default all of them that are there."""
        return [memory for memory in self.inputs if memory.role in read]

    def warnings(self, read: Mapping[str, Artifact]) -> list[str]:
        """Warnings about what an evaluation reads, by role; by default none."""
        return []

    @classmethod
    def amounts(cls, read: Mapping[str, Artifact], split: str) -> Mapping[str, int]:
        """Upper limits of its amounts in an evaluation, for reports.

        Args:
            read: artifacts of the evaluation by role; none of them need be of this source.
            split: the scored split.
        """
        return {}

    def resolve(
        self, reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> "Reading":
        """The reading with settings of this source filled in from the artifacts; see
        `resolve_reading`. By default `tune` becomes the grid of the number.
        """
        grids = {
            key: number.grid
            for key, number in self.hyperparameters().items()
            if self.value(key) == "tune"
        }
        return reading.changed(grids)


class WeightRule:
    """Readings for which a weight policy is valid; this rule admits all."""

    plans_searches: ClassVar[bool] = False
    """Whether the policy also learns which tokens to search for."""

    def check(self, reading: "Reading") -> None:
        """Refuse a reading as it was typed; by default none is refused.

        Raises: ValueError, in words that follow the text of a reading, if its keys do not fit.
        """

    def check_resolved(self, reading: "Reading") -> None:
        """Refuse a reading that artifacts have completed; by default none is refused.

        Raises: UsageError if it does not fit once similarity and key are filled in.
        """


def weight_rule(policy: str) -> WeightRule:
    """The rule of a registered policy; one without settings is valid for every reading."""
    if not isinstance(WEIGHTS.targets[policy], Part):
        return WeightRule()
    rule: WeightRule = WEIGHTS.settings(policy)()
    return rule


def default_reader() -> str:
    """The reader of a reading that names none."""
    return READERS.names()[0]


class Reading(Settings):
    """One reading of a memory; numbers to choose from are tuples, `tune` is the default grid."""

    sources: tuple[str, ...]
    """Names of sources, in the order of `SOURCES`."""
    reader: str
    comparison: Comparison
    reader_settings: SerializeAsAny[ReaderSettings]
    source_settings: tuple[SerializeAsAny[SourceSettings], ...]
    """Settings of each source, in their order."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.comparison.temperature is not None and self.comparison.theta is not None:
            raise ValueError("give temperature or theta, not both: theta is 1/temperature")
        for name, number in self.tunable.items():
            if number.example and self.value(name) is None:
                raise ValueError(f"{name} is missing: give {name}={number.example}, or {name}=tune")
        if self.per_context and self.weight not in weights_by_name():
            near = near_part(str(self.weight), ["tune", *weights_by_name()])
            raise ValueError(
                f"{self.weight_name} is no number, and no policy is called {self.weight!r}; {near}"
            )
        self.weight_rule.check(self)
        for settings in self.source_settings:
            settings.check(self)
        self._require_one_amount()
        return self

    def _require_one_amount(self) -> None:
        """Refuse a choice of amounts of two sources: cut-offs count those of the first.

        Raises: ValueError if one of several sources, other than the first, has a choice.
        """
        pairs = zip(self.sources, self.source_settings, strict=True)
        limited = [
            (source, settings.amount)
            for source, settings in pairs
            if settings.amount in settings.names()
        ]
        for source, name in limited[1:]:
            if self.value(name) == "tune" or len(self.value(name) or ()) > 1:
                raise ValueError(
                    f"{name} must be one number where {limited[0][0]} and {source} are joined: "
                    f"a choice is one of {limited[0][1]}"
                )

    # Options

    @property
    def parts(self) -> tuple[ReadingOptions, ...]:
        """All its keys, in the order in which they are spelled."""
        return self.comparison, self.reader_settings, *self.source_settings

    @property
    def tunable(self) -> dict[str, Hyperparameter]:
        """The keys whose value is a number that may be chosen."""
        return {
            name: number for part in self.parts for name, number in part.hyperparameters().items()
        }

    @property
    def choices(self) -> list[str]:
        """The keys whose number is to be chosen, or learned, on the tuning split."""
        numbers = {name: self.value(name) for name in self.tunable}
        return [
            name
            for name, v in numbers.items()
            if isinstance(v, str) or (v is not None and len(v) > 1)
        ]

    def value(self, key: str) -> Any:
        """The value of a key; None if it has none, or if the reading does not have the key."""
        return next((part.value(key) for part in self.parts if key in part.names()), None)

    def changed(self, values: Mapping[str, Any]) -> Self:
        """The reading with other values of some keys, unchecked; keys that it does not have are
        dropped.
        """
        comparison, reader, *sources = (part.changed(part.select(values)) for part in self.parts)
        parts = {
            "comparison": comparison,
            "reader_settings": reader,
            "source_settings": tuple(sources),
        }
        return self.model_copy(update=parts)

    @property
    def weight_name(self) -> str:
        """The key of the reader's own number: `lambda` of interpolate, `alpha` of joint."""
        return next(iter(self.reader_settings.hyperparameters()))

    @property
    def weight(self) -> tuple[float, ...] | str:
        """The reader's own number: values to choose from, `tune`, or the policy that gives one for
        each context.
        """
        assert self.reader_settings.weight is not None
        return self.reader_settings.weight

    @property
    def per_context(self) -> bool:
        """Whether the reader's own number differs between contexts."""
        return (
            isinstance(self.reader_settings.weight, str) and self.reader_settings.weight != "tune"
        )

    @property
    def policy(self) -> str:
        """Name in `WEIGHTS` of the policy that finds its weight on the tuning split."""
        return str(self.weight) if self.per_context else "grid"

    @property
    def weight_rule(self) -> WeightRule:
        """Readings for which its policy is valid."""
        return weight_rule(self.policy)

    @property
    def searched(self) -> float:
        """Share of the tuning split's tokens that are searched for."""
        return min(settings.searched_share for settings in self.source_settings)

    @property
    def skips_searches(self) -> bool:
        """Whether some tokens are not searched for."""
        return any(settings.skips_searches for settings in self.source_settings)

    def with_tuned_weight(self) -> Self:
        """The reading with the default grid of the reader's own number: one for all contexts."""
        return self.changed({self.weight_name: self.tunable[self.weight_name].grid})

    @property
    def scale_name(self) -> str:
        """The key of the factor of scores: `temperature`, or `theta`."""
        return "temperature" if self.comparison.theta is None else "theta"

    # What an evaluation must know

    @property
    def compares_keys(self) -> bool:
        """Whether one of its sources compares representations."""
        return any(settings.compares_keys for settings in self.source_settings)

    @property
    def reads_windows(self) -> bool:
        """Whether one of its sources depends on where windows begin."""
        return any(settings.reads_windows for settings in self.source_settings)

    @property
    def reads_datastore(self) -> bool:
        """Whether one of its sources reads a datastore."""
        return any(settings.reads_datastore for settings in self.source_settings)

    @property
    def neighbors(self) -> int:
        """Maximum number of neighbours that a completed reading reads; 0 for none."""
        amounts = [
            settings.value(settings.amount)
            for settings in self.source_settings
            if settings.finds_neighbors
        ]
        return max((max(amount) for amount in amounts if isinstance(amount, tuple)), default=0)

    # Texts

    @property
    def spelled(self) -> str:
        """The one way to write this reading: keys in their order, defaults left out."""
        values = {} if self.reader == default_reader() else {"reader": self.reader}
        for part in self.parts:
            values |= part.model_dump(by_alias=True, exclude_defaults=True)
        sources = "+".join(self.sources)
        settings = [
            f"{key}={spelled_value(value)}" for key, value in values.items() if value is not None
        ]
        return f"{sources}:{','.join(settings)}" if settings else sources


SpelledReading = Annotated[Reading, PlainSerializer(lambda reading: reading.spelled, str)]
"""A reading that is written as text in manifests."""
