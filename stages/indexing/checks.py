"""Check of stored neighbours."""

import numpy as np

from stages.artifacts.schema import between


def wrong_neighbors(datastore_rows: int, values: np.ndarray, start: int, rows: int) -> str | None:
    """Check ids: rows of the datastore, or -1 for missing neighbours, after all others. None: they
    are right.
    """
    # -1 is the largest unsigned number, so one pass suffices if nothing is missing or wrong
    if not values.size or values.view(np.uint64).max() < datastore_rows:
        return None
    wrong = between(-1, datastore_rows, "rows of the datastore, and -1,")(values, start, rows)
    after_missing = (values[:, :-1] < 0) & (values[:, 1:] >= 0)
    if wrong is None and after_missing.any():
        return f"row {start + int(np.flatnonzero(after_missing.any(-1))[0])} has neighbours behind one that is missing"
    return wrong
