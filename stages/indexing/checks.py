"""Check of stored neighbours."""

from typing import TYPE_CHECKING

from stages.artifacts.schema import between

if TYPE_CHECKING:
    # NumPy takes time to import, and a command whose artifact is there needs none
    import numpy as np


def wrong_neighbors(datastore_rows: int, values: "np.ndarray", start: int, rows: int) -> str | None:
    """Check ids: rows of the datastore, or -1 for missing neighbours, after all others. None: they
    are right.
    """
    # -1 is the largest unsigned number, so one pass suffices if nothing is missing or wrong
    if not values.size or values.view("uint64").max() < datastore_rows:
        return None
    wrong = between(-1, datastore_rows, "rows of the datastore, and -1,")(values, start, rows)
    after_missing = (values[:, :-1] < 0) & (values[:, 1:] >= 0)
    if wrong is None and after_missing.any():
        first = int(after_missing.any(-1).argmax())
        return f"row {start + first} has neighbours behind one that is missing"
    return wrong
