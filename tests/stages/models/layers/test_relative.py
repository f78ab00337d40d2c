"""Attention by distance, against one query and one key at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.models.layers import relative
from stages.models.layers.relative import relative_attention

HEADS, B, SIZE = 2, 3, 4


def operands(length, keys, dtype=torch.float64):
    """q, k, v, r, u, v as `relative_attention` takes them, all different."""
    generator = torch.Generator().manual_seed(0)
    shapes = [
        (HEADS, B, length, SIZE),
        *[(HEADS, B, keys, SIZE)] * 2,
        (HEADS, keys + 1, SIZE),
        *[(HEADS, SIZE)] * 2,
    ]
    return [
        torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes
    ]


def slow(q, k, v, r, content, position):
    """The same, by loops."""
    _, _, length, size = q.shape
    keys = k.shape[2]
    out = np.zeros_like(q)
    for head, row, i in np.ndindex(HEADS, B, length):
        own = keys - length + i
        scores = np.array(
            [
                (q[head, row, i] + content[head]) @ k[head, row, j]
                + (q[head, row, i] + position[head]) @ r[head, keys - (own - j)]
                for j in range(own + 1)
            ]
        )
        weights = np.exp((scores - scores.max()) / size**0.5)
        out[head, row, i] = weights @ v[head, row, : own + 1] / weights.sum()
    return out


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 7), before=st.integers(0, 9))
def test_every_query_reads_its_past_by_content_and_distance(length, before):
    given_ = operands(length, before + length)
    want = slow(*(part.detach().numpy() for part in given_))
    np.testing.assert_allclose(relative_attention(*given_).detach(), want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("length", "keys"), [(1, 1), (4, 4), (3, 8)])
def test_gradients_are_those_of_small_differences(length, keys):
    assert torch.autograd.gradcheck(relative_attention, operands(length, keys))


def test_a_product_for_each_row_gives_the_numbers_of_one_for_all(monkeypatch):
    """Scores and gradients."""
    found = []
    for many in (1, 1 << 20):
        monkeypatch.setattr(relative, "MANY", many)
        operands_ = operands(5, 8)
        read = relative_attention(*operands_)
        found.append([read, *torch.autograd.grad(read.square().sum(), operands_)])
    for by_row, at_once in zip(*found, strict=True):
        torch.testing.assert_close(by_row, at_once, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("length", "keys"), [(64, 64), (64, 128)])
def test_bf16_is_near(length, keys):
    exact = relative_attention(*operands(length, keys, torch.float32))
    low = relative_attention(
        *(part.to(torch.bfloat16) for part in operands(length, keys, torch.float32))
    )
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), exact, rtol=0.05, atol=0.05)


def test_dropout_takes_whole_weights():
    q, k, _, *rest = operands(6, 9)
    torch.manual_seed(0)
    read = relative_attention(q, k, torch.ones_like(k), *rest, 0.5)
    assert not torch.allclose(read, torch.ones_like(read))
    assert float(read.detach().mean()) == pytest.approx(1, abs=0.2)
