"""Kernels are called with arrays of the shapes that they name, in tests: what else is given is
refused.
"""

import numpy as np
import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from stages.memory.entries import Entries, find_matches
from stages.memory.readers.reader import interpolate
from stages.models.layers.relative import relative_attention
from stages.search.ranking import best_first
from tests.shapes import checked

HEADS, B, L, K, D = 2, 1, 3, 5, 4


def test_keys_of_another_number_than_distances_are_refused() -> None:
    biases = torch.zeros(2, HEADS, D)
    q, k, r = torch.zeros(HEADS, B, L, D), torch.zeros(HEADS, B, K, D), torch.zeros(HEADS, K + 1, D)
    relative_attention(q, k, k, r, *biases)
    with pytest.raises(
        TypeCheckError, match=r"^relative_attention: r is torch.float32 \(2, 5, 4\), not "
    ):
        relative_attention(q, k, k, r[:, 1:], *biases)


def test_dtypes_optional_arrays_and_what_is_returned_are_looked_at() -> None:
    entries = Entries(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(TypeCheckError):
        find_matches(entries, torch.zeros(2))
    with pytest.raises(TypeCheckError):
        Entries(
            torch.zeros(2, 3),
            torch.zeros(2, 3, dtype=torch.int64),
            torch.zeros(3, dtype=torch.int64),
        )
    with pytest.raises(TypeCheckError):
        best_first(np.zeros((2, 3), np.float32), np.zeros((2, 4), np.int64), 2)
    with pytest.raises(TypeCheckError):
        interpolate(torch.zeros(2), torch.zeros(3), 0.5)


def test_what_fitted_once_refuses_other_sizes_still() -> None:
    def halved(
        x: Float[Tensor, "n d"], y: Float[Tensor, " d"] | None = None
    ) -> Float[Tensor, " n"]:
        return x.sum(1) if x[0, 0] == 0 else x.sum(0)

    zeros, ones, halves = torch.zeros(2, 3), torch.ones(2, 3), checked(halved)
    for _ in range(2):
        assert (
            halves(zeros).shape
            == halves(zeros, torch.zeros(3)).shape
            == halves(zeros, y=None).shape
            == (2,)
        )
        for given in ((zeros, torch.zeros(2)), (zeros.int(),), (ones,)):
            with pytest.raises(TypeCheckError):
                halves(*given)


def test_a_size_may_be_an_argument_of_the_call_or_its_default() -> None:
    def made(rows: int, columns: int = 3) -> Float[Tensor, "{rows} {columns}"]:
        return torch.zeros(2, 3)

    assert checked(made)(2).shape == checked(made)(2, columns=3).shape == (2, 3)
    for sizes in ((3,), (2, 4)):
        with pytest.raises(TypeCheckError, match="what is returned"):
            checked(made)(*sizes)
