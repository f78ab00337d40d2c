"""Options of a reading; the source or reader that uses a key declares it. Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from stages.config import Settings

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True)
class Hyperparameter:
    """Annotation of a field for a number that may be tuned; the type of the field gives the legal
    range.
    """

    symbol: str
    """Symbol in papers; a word if the number is an amount."""
    label: str = ""
    """Name in charts and tables; empty: the symbol."""
    axis: str = ""
    """Unit of an amount, such as positions or neighbours."""
    grid: tuple[float, ...] = ()
    """Values that `tune` tries; empty: they come from artifacts, or from a sample of scores."""
    off: float | None = None
    """Value of a weight at which the memory changes nothing; None: there is none. It is tried in
    addition to the grid. It is not part of the grid, because report ids contain the grid."""
    example: str = ""
    """Value suggested to users who leave it out; empty: it is optional."""
    means: str = ""
    """Meaning, if the name does not say it."""
    untuned: tuple[float, ...] = ()
    """Values without tuning: for the first reading, then for later ones if they differ."""

    @property
    def words(self) -> str:
        return self.label or self.symbol


def _rising(value: Any) -> Any:
    """Sort candidates, and drop repeats, so that equal sets of numbers are equal settings."""
    return tuple(sorted(set(value))) if isinstance(value, tuple) else value


def _split_list(value: Any) -> Any:
    """`0.1/0.2` -> ("0.1", "0.2"); `tune`, and values that are not text, stay."""
    return tuple(value.split("/")) if isinstance(value, str) and value != "tune" else value


Tune = Literal["tune"]
Choice = Annotated[tuple[T, ...] | Tune, BeforeValidator(_split_list), AfterValidator(_rising)]
"""One number, several candidates, or `tune`, which tries the default grid."""
PolicyName = Annotated[str, StringConstraints(pattern="^[a-z][a-z-]{3,}$")]
"""Name of a policy, fitted on the tuning split, that gives a number for each context:
`stages.retrieval.weights`.
"""
Count = Annotated[int, Field(gt=0)]


class ReadingOptions(Settings):
    """Options of a reading, one for each field; users type its alias, if it has one."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Keys, in the order in which they are written."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    def hyperparameters(cls) -> dict[str, Hyperparameter]:
        """Hyperparameters by key."""
        result = dict[str, Hyperparameter]()
        for name, field in cls.model_fields.items():
            for annotation in field.metadata:
                if isinstance(annotation, Hyperparameter):
                    result[field.alias or name] = annotation
        return result

    @classmethod
    def select(cls, values: Mapping[str, V]) -> dict[str, V]:
        """Keep the values whose keys belong to these settings."""
        return {key: value for key, value in values.items() if key in cls.names()}

    def value(self, key: str) -> Any:
        """Value of a key; for a hyperparameter, its candidates, or `tune`. None: not given."""
        return getattr(self, self._field(key))

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Copy the options with other values of some keys, without validation."""
        return self.model_copy(update={self._field(key): value for key, value in values.items()})

    def _field(self, key: str) -> str:
        """Name of the field of a key, which is the field's alias if it has one."""
        fields = type(self).model_fields.items()
        return next(name for name, field in fields if key == (field.alias or name))


def spelled_value(value: Any) -> str:
    """The one spelling of a value of a key, since ids contain it.

    >>> spelled_value((0.1, 2.0)), spelled_value(True)
    ('0.1/2', 'true')
    """
    if isinstance(value, tuple):
        return "/".join(map(spelled_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def doubling_cutoffs(k: int) -> tuple[int, ...]:
    """1, 2, 4, … up to k, and k itself.

    >>> doubling_cutoffs(6)
    (1, 2, 4, 6)
    """
    powers = [2**exponent for exponent in range(k.bit_length())]
    return tuple(sorted({*powers, k}))
