"""Arguments of the library's functions: arrays of NumPy, torch or lists, and numbers, each checked
by name. Free of torch.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from stages.errors import UsageError, shortened

LARGEST_LOG_P = 1e-4
"""Largest number that counts as a log-probability.

A sum of exponentials in float32 may end a little above 0; a probability ends far above it.
"""


def count(value: Any, name: str) -> int:
    """A whole number from 1 on. Raises: UsageError for anything else.

    >>> count(np.int64(3), "k")
    3
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or _index(value) < 1:
        raise UsageError(f"{name} is a whole number, 1 or more, not {shortened(repr(value))}.")
    return _index(value)


def positive(value: Any, name: str) -> float:
    """A number above 0. Raises: UsageError for anything else."""
    number = real(value, name)
    # The reciprocal is what scores are multiplied by, so it must be finite, too.
    if not number > 0 or math.isinf(1 / number):
        raise UsageError(f"{name} is a number above 0, not {shortened(repr(value))}.")
    return number


def real(value: Any, name: str) -> float:
    """A number; infinity is one. Raises: UsageError for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):  # the last of a tensor with several numbers
        number = math.nan
    if math.isnan(number) or isinstance(value, str | bytes | bool):
        raise UsageError(f"{name} is a number, not {shortened(repr(value))}.")
    return number


def values_to_try(
    values: Any, name: str, checked: Callable[[Any, str], float]
) -> tuple[float, ...]:
    """Numbers of a list or an array, each checked. Raises: UsageError."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UsageError(f"{name} is a list of numbers, not {shortened(repr(values))}.")
    return tuple(checked(value, f"each of {name}") for value in values)


def array(values: Any, name: str, *shapes: str) -> np.ndarray:
    """Numbers as a NumPy array with as many dimensions as one of `shapes` has names.

    It shares the memory of the argument where it can. bfloat16 of torch becomes float32, which
    loses nothing.

    Args:
        shapes: in words, such as `[n, d]`; none: any shape.
    Raises: UsageError for other shapes, and for anything but numbers.
    """
    try:
        numbers = np.asarray(_detached(values))
    except (TypeError, ValueError, RuntimeError):  # rows of several lengths, or no numbers
        numbers = np.array(None)
    if numbers.dtype.kind not in "iuf":
        kind_given = getattr(values, "dtype", shortened(repr(values)))
        raise UsageError(
            f"{name} are numbers{f', {shapes[0]}' if shapes else ''}, not {kind_given}."
        )
    if shapes and numbers.ndim not in [shape.count(",") + 1 for shape in shapes]:
        raise UsageError(f"{name} are {shapes[0]}, not {list(numbers.shape)}.")
    # torch takes neither steps backwards nor a foreign byte order.
    if min(numbers.strides, default=0) < 0:
        numbers = numbers.copy()
    return numbers.astype(numbers.dtype.newbyteorder("="), copy=False)


def floats(values: Any, name: str, shape: str) -> np.ndarray:
    """Finite numbers as float16 or float32; other floats are rounded to float32.

    Raises: UsageError as `array` does, and for integers.
    """
    numbers = array(values, name, shape)
    require_float(numbers.dtype, name)
    if numbers.dtype in (np.float16, np.float32):
        return numbers
    # Numbers beyond float32 become infinite, which `require_finite` refuses.
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def require_float(dtype: np.dtype, name: str) -> None:
    """Raises: UsageError unless numbers are floats: of integer keys, queries would be cut to
    integers.
    """
    if dtype.kind != "f":
        raise UsageError(
            f"{name} are floats, not {dtype}; convert them, for example by astype('float32')."
        )


def require_finite(numbers: np.ndarray, name: str) -> None:
    """Check that numbers are finite. Raises: UsageError naming the first row that holds NaN or
    infinity.
    """
    finite = np.isfinite(numbers)
    if not finite.all():
        place = _first_place(~finite)
        raise UsageError(
            f"{name}: {_row(place)} holds {numbers[place]}, which is no finite number."
        )


def log_probabilities(values: Any, name: str, shape: str = "[n]") -> np.ndarray:
    """Natural logs of probabilities, float32 or float64.

    Raises: UsageError as `array` does, and naming the first row that holds no finite number, or one
        above 0.
    """
    numbers = array(values, name, shape)
    require_finite(numbers, name)
    require_logs(numbers, name)
    return numbers if numbers.dtype == np.float64 else numbers.astype(np.float32, copy=False)


def require_logs(numbers: np.ndarray, name: str) -> None:
    """Check that numbers may be log-probabilities. Raises: UsageError naming the first row above 0."""
    above = numbers > LARGEST_LOG_P
    if above.any():
        place = _first_place(above)
        raise UsageError(
            f"{name}: {_row(place)} holds {numbers[place]:.4g}, and a log-probability is 0 or less; "
            "give natural logarithms of probabilities."
        )


def tokens(values: Any, name: str, *, vocabulary: int | None = None) -> np.ndarray:
    """Ids of tokens, int64 [n].

    Args:
        vocabulary: number of token types; None: unknown.
    Raises: UsageError as `array` does, and naming the first row that is no id.
    """
    ids = array(values, name, "[n]")
    if ids.dtype.kind == "f" and ids.size:
        raise UsageError(f"{name} are whole numbers, ids of tokens, not {ids.dtype}.")
    largest = np.iinfo(np.int64).max if vocabulary is None else vocabulary - 1
    wrong = (ids < 0) | (ids > largest)
    if wrong.any():
        row = int(np.argmax(wrong))
        end = "" if vocabulary is None else f" to {largest:,}"
        raise UsageError(f"{name}: row {row:,} holds {ids[row]}, and ids are from 0{end}.")
    return ids.astype(np.int64, copy=False)


def same_length(lengths: dict[str, int]) -> None:
    """Check that arguments, by name, are as long as each other. Raises: UsageError."""
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise UsageError(f"Each has one row for a position, and their lengths differ: {each}.")


def require_positions(length: int, name: str) -> None:
    """Check that there is a position at all. Raises: UsageError."""
    if not length:
        raise UsageError(f"{name}: there are no positions; give at least one.")


def _first_place(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(np.argwhere(mask)[0].tolist())


def _row(place: tuple[int, ...]) -> str:
    return f"row {place[0]:,}" if place else "the number"


def _index(value: Any) -> int:
    try:
        return int(value.__index__())
    except TypeError:  # an array or a tensor with several numbers
        return 0


def _detached(values: Any) -> Any:
    """A tensor without its graph and on the CPU, in a type that NumPy has; other values as they are."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return values.float() if str(values.dtype) == "torch.bfloat16" else values
