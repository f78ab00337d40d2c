"""Tables as notebooks take them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Columns = dict[str, "np.ndarray"]
"""A table: arrays of one length by name, as `pandas.DataFrame` and `polars.DataFrame` take it."""


def columns(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows of one shape as arrays by name; texts as Python's own."""
    import numpy as np

    found = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        plain = all(isinstance(value, bool | int | float) for value in values)
        found[name] = np.array(values) if plain else np.array(values, object)
    return found
