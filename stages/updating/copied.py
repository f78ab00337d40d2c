"""Rows that stay, copied from the datastore before."""

import numpy as np

from stages.updating.work import Work


def copy_rows(work: Work, rows: slice, keys: np.ndarray, values: np.ndarray) -> None:
    """Fill in those of the new `rows` that stay, in `keys` [n, d] and `values` [n]; reads each old shard once."""
    step, held = work.keys.rows_per_shard, -1
    for first, old, stop in work.plan.kept.between(rows.start, rows.stop):
        for begin in range(old // step * step, stop, step):
            if begin != held:
                held, old_keys, old_values = begin, work.keys.read(begin // step), work.values[begin : begin + step]
            a, b = max(begin, old), min(begin + step, stop)
            place = slice(first - rows.start + a - old, first - rows.start + b - old)
            keys[place], values[place] = old_keys[a - begin : b - begin], old_values[a - begin : b - begin]
