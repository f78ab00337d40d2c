"""Schemas: types and ranges of the metrics and arrays that a stage writes, since a correct digest
cannot ensure them.

Each stage declares its own (`Stage.schema`). Its `Config` checks settings. Metrics are checked when
an artifact is found, and shapes of arrays when they are opened. Values are checked in each slice
that is read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    import numpy as np


Count = Annotated[int, Field(ge=0, lt=2**53)]
Positive = Annotated[int, Field(gt=0, lt=2**53)]
Share = Annotated[float, Field(ge=0, le=1)]


class Figures(BaseModel):
    """Metrics that other code reads; a stage may write more. The model is built when it is first
    used.
    """

    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)


Check = Callable[["np.ndarray", int, int], "str | None"]
"""Function (values, start, rows) that checks values, which begin at row `start` of an array of
`rows` rows. It returns a message, or None if they are valid. It can be pickled."""


class Expected(NamedTuple):
    """Expected shape, dtypes and values of an array; None in a shape allows any length."""

    shape: tuple[int | None, ...]
    dtypes: tuple[str, ...]
    check: Check


def _any_array(artifact: Any, name: str) -> Expected | None:
    return None


@dataclass(frozen=True)
class Schema:
    """Schema of the metrics and arrays that a stage writes."""

    metrics: type[Figures] = Figures
    arrays: Callable[[Any, str], Expected | None] = _any_array
    """Expected form of an array, from the artifact and the array's name (`tokens.zarr/train/ids`);
    None: any shape, dtype and values are accepted."""


# Checks of values


def between(low: int, stop: int, what: str) -> Check:
    """Check for integers low <= value < stop; `what` names them in messages.

    >>> import numpy as np
    >>> between(0, 5, "ids")(np.array([3, 7]), 10, 100)
    'row 11 holds 7, where ids from 0 to 4 are'
    """
    return partial(_outside, low, stop, what)


def _outside(
    low: int, stop: int, what: str, values: "np.ndarray", start: int, rows: int
) -> str | None:
    if not values.size or (values.min() >= low and values.max() < stop):
        return None
    flat = values.ravel()
    is_outside = (flat < low) | (flat >= stop)
    place = int(is_outside.argmax())
    # a row may hold several values
    row = start + place * len(values) // values.size
    return f"row {row} holds {flat[place]}, where {what} from {low} to {stop - 1} are"


def offsets(last: int | None) -> Check:
    """Check for offsets: non-negative integers that never fall; the last one is `last`, unless that
    is None.

    >>> import numpy as np
    >>> offsets(9)(np.array([0, 5, 4]), 0, 4)
    'row 2 holds 4, less than the one before'
    """
    return partial(_no_offsets, last)


def _no_offsets(last: int | None, values: "np.ndarray", start: int, rows: int) -> str | None:
    if not len(values):
        return None
    is_falling = values[1:] < values[:-1]
    if is_falling.any():
        place = 1 + int(is_falling.argmax())
        return f"row {start + place} holds {values[place]}, less than the one before"

    # offsets rise, so the first is the smallest and the last the largest
    smallest = values[0]
    largest = values[-1]
    if smallest < 0 or (last is not None and largest > last):
        return (
            f"rows from {start} on hold {smallest} to {largest}, where offsets from 0 to {last} are"
        )
    is_end = start + len(values) == rows
    if last is not None and is_end and largest != last:
        return f"the last row holds {largest}, not {last}"
    return None


def finite(values: "np.ndarray", start: int, rows: int) -> str | None:
    """Check for finite numbers."""
    import numpy as np

    return _first(np.isfinite(values), values, start)


def numbers(values: "np.ndarray", start: int, rows: int) -> str | None:
    """Check for numbers other than nan; infinity is valid."""
    import numpy as np

    # the minimum of values with a nan is nan, so one pass without a temporary array suffices
    if not values.size or not np.isnan(values.min()):
        return None
    return _first(~np.isnan(values), values, start)


def anything(values: "np.ndarray", start: int, rows: int) -> str | None:
    """Check that accepts all values."""
    return None


def _first(right: "np.ndarray", values: "np.ndarray", start: int) -> str | None:
    if right.all():
        return None
    place = int((~right.ravel()).nonzero()[0][0])
    return f"row {start + place * len(values) // values.size} holds {values.ravel()[place]}"
