"""What rows had seen, against their windows one by one."""

import numpy as np
import pytest

from stages.examples.cutting import WindowSettings
from stages.lineage.runs import KeptRows, Runs
from stages.updating.change import seen_behind

OFFSETS = np.array([0, 3, 3, 8, 12, 13, 20])


@pytest.mark.parametrize("windows", [WindowSettings(4, 4), WindowSettings(6, 2), WindowSettings(5, 1)])
@pytest.mark.parametrize("gone", [[0], [2], [2, 4], [3, 5], []])
def test_rows_that_had_what_goes_in_their_window_are_counted(windows: WindowSettings, gone: list[int]) -> None:
    kept = KeptRows.of_documents(OFFSETS, np.array(gone, np.int64))
    removed = {row for document in gone for row in range(OFFSETS[document], OFFSETS[document + 1])}
    found = seen_behind(Runs.whole(20), kept, windows)
    for (first, last), count in zip(kept.ranges.tolist(), found.tolist(), strict=True):
        for row in range(first, last):
            begins = max(0, -(-(row - windows.context + 1) // windows.stride)) * windows.stride
            assert (row < first + count) == any(begins <= token < first for token in removed if first), (first, row)
