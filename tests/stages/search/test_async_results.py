import numpy as np
import torch

from stages.search.ranking import MISSING
from stages.search.tensors import AsyncResults, packed


def test_parts_of_a_result_are_put_where_they_belong() -> None:
    scores, rows = torch.rand(5, 3), torch.randint(100, (5, 3))
    pairs = packed(scores, rows)
    pairs[4, 2] = MISSING
    with AsyncResults(5, 3, 100, "cpu") as found:
        found.put(slice(3, 5), pairs[3:])
        found.put(np.array([0, 2]), pairs[[0, 2]])
        found.put(slice(1, 2), pairs[1:2])
        found.wait()
    assert (found.scores.dtype, found.rows.dtype) == (np.float32, np.int64)
    scores[4, 2], rows[4, 2] = torch.inf, -1
    np.testing.assert_array_equal(found.scores, scores)
    np.testing.assert_array_equal(found.rows, rows)
