"""Projections of gradients, beside a general solver in float64."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from stages.errors import UsageError
from stages.methods.stream.projection import a_gem_projection, gem_projection


def drawn(seed: int, rows: int, size: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.normal(size=size)), torch.from_numpy(
        random.normal(size=(rows, size))
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_gem_finds_the_nearest_gradient_that_points_apart_from_none(seed: int, rows: int) -> None:
    gradient, others = drawn(seed, rows)
    found = gem_projection(gradient, others, 0.0)
    assert (others @ found).min() > -1e-6
    own, G = gradient.numpy(), others.numpy()
    best = minimize(
        lambda z: 0.5 * ((z - own) ** 2).sum(), own, jac=lambda z: z - own, method="SLSQP", tol=1e-12,
        constraints={"type": "ineq", "fun": lambda z: G @ z, "jac": lambda z: G},
    )  # fmt: skip
    np.testing.assert_allclose(found.numpy(), best.x, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_gem_with_a_margin_solves_the_dual_of_the_papers_code(seed: int) -> None:
    gradient, others = drawn(seed, 3)
    others[0] = -gradient + 0.1 * others[0]  # so that something points apart
    G, own, margin = others.numpy(), gradient.numpy(), 0.5
    best = minimize(
        lambda v: 0.5 * ((G.T @ v + own) ** 2).sum(), np.full(3, 1.0), jac=lambda v: G @ (G.T @ v + own),
        bounds=[(margin, None)] * 3, method="L-BFGS-B", tol=1e-14,
    )  # fmt: skip
    np.testing.assert_allclose(
        gem_projection(gradient, others, margin).numpy(), G.T @ best.x + own, atol=1e-4
    )


def test_gem_with_alike_and_empty_gradients() -> None:
    gradient, _ = drawn(0, 1)
    twice = torch.cat((-gradient[None], -gradient[None], torch.zeros(1, 6)))
    np.testing.assert_allclose(gem_projection(gradient, twice, 0.0).numpy(), np.zeros(6), atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_a_gem_takes_away_what_points_against_the_reference(seed: int) -> None:
    gradient, (reference,) = drawn(seed, 1)
    found = a_gem_projection(gradient, reference)
    if gradient @ reference >= 0:
        assert found is gradient
    else:
        assert abs(float(found @ reference)) < 1e-12
        np.testing.assert_allclose(
            found.numpy(), gem_projection(gradient, reference[None], 0.0).numpy(), atol=1e-8
        )


def test_nothing_changes_where_nothing_points_apart() -> None:
    gradient, others = drawn(1, 3)
    along = others * torch.sign(others @ gradient)[:, None]
    assert gem_projection(gradient, along, 0.5) is gradient


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_gradient_that_is_no_number_is_said_to_be_one(wrong: float) -> None:
    gradient, others = drawn(0, 2)
    for one in (gradient, others[0]):
        own, one[0] = one[0].item(), wrong
        with pytest.raises(UsageError, match="--lr"):
            gem_projection(gradient, others, 0.5)
        one[0] = own
