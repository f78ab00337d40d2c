"""The keys of a reading, each declared once by the source or reader that understands it. Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from stages.config import Settings

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True)
class Hyperparameter:
    """A number of a reading that may be tuned; it stands beside the type of its field, which says what is legal."""

    symbol: str
    """As papers write it; of an amount, in words."""
    label: str = ""
    """As charts and tables call it where that is not its symbol."""
    axis: str = ""
    """The thing that an amount counts, such as positions or neighbours."""
    grid: tuple[float, ...] = ()
    """Values that `tune` tries. Empty: artifacts, or a sample of scores, decide."""
    off: float | None = None
    """The value of a weight at which the memory changes nothing; None: there is none. It is tried in addition to
    the grid, and is not part of it, since report ids contain the grid."""
    example: str = ""
    """The value suggested where it is missing; empty: it may be missing."""
    means: str = ""
    """Its meaning, where the name does not say it."""
    untuned: tuple[float, ...] = ()
    """Values where nothing is tuned: of the first reading; then of a later one, if that differs."""

    @property
    def words(self) -> str:
        return self.label or self.symbol


def _rising(value: Any) -> Any:
    """Numbers to choose from in rising order, each once: a list means the same however it is written."""
    return tuple(sorted(set(value))) if isinstance(value, tuple) else value


def _split_list(value: Any) -> Any:
    """`0.1/0.2` -> ("0.1", "0.2"); `tune` and what is no text stay."""
    return tuple(value.split("/")) if isinstance(value, str) and value != "tune" else value


Tune = Literal["tune"]
Choice = Annotated[tuple[T, ...] | Tune, BeforeValidator(_split_list), AfterValidator(_rising)]
"""One number, several to choose from, or `tune`: the default grid."""
PolicyName = Annotated[str, StringConstraints(pattern="^[a-z][a-z-]{3,}$")]
"""A number for each context, from a policy that is fitted on the tuning split; see `stages.retrieval.weights`."""
Count = Annotated[int, Field(gt=0)]


class ReadingOptions(Settings):
    """Options of a reading and their values. Each field is one; its alias, if it has one, is what users type."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The keys, in the order in which they are spelled."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    def hyperparameters(cls) -> dict[str, Hyperparameter]:
        """Keys whose value is a number that may be tuned."""
        return {
            field.alias or name: mark
            for name, field in cls.model_fields.items()
            for mark in field.metadata
            if isinstance(mark, Hyperparameter)
        }

    @classmethod
    def own(cls, values: Mapping[str, V]) -> dict[str, V]:
        """Keep the values whose keys belong to these settings."""
        return {key: value for key, value in values.items() if key in cls.names()}

    def value(self, key: str) -> Any:
        """The value of a key; for a hyperparameter, the numbers to choose from, or `tune`. None: it has no value."""
        return getattr(self, self._field(key))

    def changed(self, values: Mapping[str, Any]) -> Self:
        """The same with other values of some keys, which are not checked."""
        return self.model_copy(update={self._field(key): value for key, value in values.items()})

    def _field(self, key: str) -> str:
        return next(name for name, field in type(self).model_fields.items() if key == (field.alias or name))


def doubling_cutoffs(k: int) -> tuple[int, ...]:
    """1, 2, 4, … up to k, and k itself."""
    powers = accumulate(repeat(2, k.bit_length() - 1), int.__mul__, initial=1)
    return tuple(sorted({*powers, k}))
