"""Check of stored neighbours."""

from typing import TYPE_CHECKING

from stages.artifacts.schema import between

if TYPE_CHECKING:
    # NumPy takes time to import, and a command whose artifact is there needs none.
    import numpy as np


def wrong_neighbors(datastore_rows: int, values: "np.ndarray", start: int, rows: int) -> str | None:
    """Check ids: rows of the datastore, or -1 for missing neighbours, after all others. None: they
    are right.
    """
    # -1 is the largest unsigned number, so one pass suffices if nothing is missing or wrong.
    if not values.size or values.view("uint64").max() < datastore_rows:
        return None

    check = between(-1, datastore_rows, "rows of the datastore, and -1,")
    wrong = check(values, start, rows)
    if wrong is not None:
        return wrong

    is_missing = values < 0
    is_after_missing = is_missing[:, :-1] & ~is_missing[:, 1:]
    wrong_rows = is_after_missing.any(-1)
    if wrong_rows.any():
        first = int(wrong_rows.argmax())
        return f"row {start + first} has neighbours behind one that is missing"
    return None
