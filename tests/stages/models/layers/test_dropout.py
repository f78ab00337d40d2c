import pytest
import torch

from stages.models.layers.dropout import Dropout, keep_mask


def test_drops_its_share_and_keeps_the_mean():
    torch.manual_seed(0)
    y = Dropout(0.3)(torch.ones(400, 1001))
    assert (y == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    assert y.unique().tolist() == pytest.approx([0, 1 / 0.7], rel=1e-4)


def test_a_share_of_nearly_one_leaves_finite_numbers():
    torch.manual_seed(0)
    y = Dropout(1 - 1e-9)(torch.ones(1 << 18))
    assert y.isfinite().all() and set(y.unique().tolist()) <= {0.0, float(1 << 16)}


def test_neighbours_fall_independently():
    torch.manual_seed(0)
    kept = keep_mask(torch.Size((200_000,)), 1 << 15).float()
    for distance in (1, 2, 3, 4):
        assert abs((kept[distance:] * kept[:-distance]).mean().item() - 0.25) < 0.005


def test_follows_torchs_generator():
    layer = Dropout(0.5)
    x = torch.ones(7, 3)
    torch.manual_seed(1)
    first, second = layer(x), layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


def test_does_nothing_when_evaluating_or_without_a_share():
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_gradient_flows_where_elements_stayed():
    x = torch.ones(1000, requires_grad=True)
    y = Dropout(0.25)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, y.detach())
