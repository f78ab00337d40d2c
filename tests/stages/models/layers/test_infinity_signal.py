"""Signals in parts: their basis and fit, and where they are sampled; against quadrature, inverses
and loops.
"""

from math import erf, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.models.layers.infinity import SignalWriter
from stages.models.layers.memory_settings import InfinitySettings
from stages.models.layers.signal_basis import Basis, Fit, even_places, masses, sticky_places
from tests.oracles import infinity as oracle

FLOAT64 = torch.zeros(0, dtype=torch.float64)


def shape(basis=12, widths=(0.05, 0.2), ridge=0.5):
    return oracle.Shape(1, 1, 1, basis, 1, 0.5, True, widths, ridge)


@pytest.mark.parametrize("widths", [(0.05, 0.2), (0.1,), (0.01, 0.02, 0.4)])
def test_functions_are_normal_densities_at_equal_distances(widths):
    basis, places = Basis(12, widths), torch.linspace(-0.5, 1.5, 9, dtype=torch.float64)
    wanted = [
        [oracle.normal(t, *psi) for psi in oracle.functions(shape(12, widths))]
        for t in places.tolist()
    ]
    np.testing.assert_allclose(basis.at(places), wanted, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("variance", [1e-6, 1e-3, 0.7, 40.0])
@pytest.mark.parametrize("mean", [0.0, 0.33, 1.0])
def test_expectations_are_integrals(mean, variance):
    basis = Basis(6, (0.02, 0.3))
    got = basis.expected(*(torch.tensor([x], dtype=torch.float64) for x in (mean, variance)))[0]
    psis = oracle.functions(shape(6, (0.02, 0.3)))
    wanted = [oracle.expectation(mean, sqrt(variance), psi, 200_001) for psi in psis]
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("samples", "new"), [(5, 4), (0, 7), (3, 1), (1, 0)])
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 30.0])
def test_a_fit_is_the_ridge_regression(samples, new, ridge):
    contraction = 0.6 if samples else 0.0
    fit = Fit(Basis(12, (0.05, 0.2)), ridge, samples, new, contraction)
    vectors = np.random.default_rng(0).standard_normal((samples + new, 3))
    places = [contraction * (m + 1) / samples for m in range(samples)]
    places += [contraction + (1 - contraction) * (n + 1) / new for n in range(new)]
    np.testing.assert_allclose(fit.positions(), places, rtol=1e-12)
    wanted = oracle.fitted(vectors, places, shape(ridge=ridge))
    np.testing.assert_allclose(fit.matrix(FLOAT64).numpy() @ vectors, wanted, rtol=1e-6, atol=1e-7)


def test_a_smooth_signal_is_kept_and_noise_is_smoothed():
    """64 vectors on 64 functions of two widths."""
    fit, t = (
        Fit(Basis(64, (0.01, 0.05)), 1.0, 0, 64, 0.0),
        torch.arange(1, 65, dtype=torch.float64) / 64,
    )
    walk = torch.randn(
        64, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).cumsum(0)

    def explained(x):
        got = Basis(64, (0.01, 0.05)).at(t) @ (fit.matrix(x) @ x)
        return 1 - float((got - x).square().sum() / x.square().sum())

    assert explained(walk) > 0.98
    assert 0.2 < explained(walk.diff(dim=0, prepend=walk[:1])) < 0.8


def test_large_fits_are_exact_in_float32_too():
    """Of so many functions the normal equations are too ill-conditioned for float32; their solution
    is not.
    """
    fit = Fit(Basis(256, (0.005, 0.01)), 0.5, 256, 256, 0.5)
    torch.testing.assert_close(
        fit.matrix(torch.zeros(0)).double(), fit.matrix(FLOAT64), rtol=1e-6, atol=1e-7
    )


def test_fits_are_made_once():
    fit = Fit(Basis(8, (0.1,)), 1.0, 3, 4, 0.5)
    assert fit.matrix(FLOAT64) is Fit(Basis(8, (0.1,)), 1.0, 3, 4, 0.5).matrix(FLOAT64)


@pytest.mark.parametrize("bins", [1, 2, 128])
def test_masses_are_those_of_normal_densities_within_the_signal(bins):
    random = np.random.default_rng(0)
    mean, deviation = random.random((2, 3, 5)), np.exp(random.uniform(-7, 1, (2, 3, 5)))
    mean[0, 0, 0], mean[0, 0, 1] = 0, 1
    got = masses(torch.tensor(mean), torch.tensor(deviation**2), bins)
    edges = [n / bins for n in range(bins + 1)]
    for row in range(2):
        looks = list(zip(mean[row].flat, deviation[row].flat, strict=True))
        for part in range(bins):
            low, high = edges[part : part + 2]
            wanted = sum(
                (erf((high - m) / (s * sqrt(2))) - erf((low - m) / (s * sqrt(2)))) / 2
                for m, s in looks
            )
            assert float(got[row, part]) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_wide_attention_is_spread_evenly():
    """Not at both ends, where most of it lies outside."""
    got = masses(torch.full((1, 1, 1), 0.5), torch.full((1, 1, 1), 100.0), 4)
    torch.testing.assert_close(got / got.sum(), torch.full((1, 4), 0.25), rtol=0.01, atol=0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=9).filter(
        lambda x: max(x) > 0.1
    ),
    st.integers(1, 20),
)
def test_sticky_places_are_quantiles(weights, samples):
    got = sticky_places(torch.tensor([weights], dtype=torch.float64), samples)[0].tolist()
    assert got == sorted(got)
    for m, place in enumerate(got):
        part = min(int(place * len(weights)), len(weights) - 1)
        below = sum(weights[:part]) + weights[part] * (place * len(weights) - part)
        assert below / sum(weights) == pytest.approx((m + 0.5) / samples, abs=1e-6)
        assert 0 <= place <= 1


def test_equal_weights_are_sampled_evenly_and_one_bin_alone_takes_all_samples():
    like = torch.zeros(1)
    torch.testing.assert_close(sticky_places(torch.ones(1, 128), 10), even_places(10, like) - 0.05)
    alone = torch.zeros(1, 4)
    alone[0, 2] = 7
    torch.testing.assert_close(
        sticky_places(alone, 4), torch.tensor([[0.53125, 0.59375, 0.65625, 0.71875]])
    )
    torch.testing.assert_close(sticky_places(torch.zeros(1, 4), 2), torch.tensor([[0.25, 0.75]]))
    ends = torch.zeros(2, 4)
    ends[0, 0] = ends[1, 3] = 1
    places = sticky_places(ends, 3)
    assert (places[0] < 0.25).all()
    assert (places[1] > 0.75).all()


def test_where_attention_fell_takes_more_room():
    """A signal with a step at 1/2; sampled where the second half was looked at, the step moves to
    the front.
    """
    writer = SignalWriter(
        1, Basis(64, (0.02,)), InfinitySettings(basis=64, widths=(0.02,), samples=64, ridge=1e-3)
    )
    step = (torch.arange(32) >= 16).float()[None, :, None]
    with torch.no_grad():
        writer.gate.taps.weight.zero_()
        writer.gate.taps.bias.fill_(50.0)
        signal = writer(torch.zeros(1, 64, 1), step)
        weights = torch.cat((torch.full((1, 64), 1.0), torch.full((1, 64), 9.0)), 1)
        even, sticky = (writer(signal, torch.zeros(1, 4, 1), chosen) for chosen in (None, weights))
    t = torch.linspace(0.02, 0.48, 200)

    def old(coefficients):
        """The share of the old signal, on [0, 1/2] now, that is from behind the step."""
        return float(((writer.basis.at(t) @ coefficients[0])[:, 0] > 0.5).float().mean())

    assert old(even) == pytest.approx(0.5, abs=0.05)
    assert old(sticky) == pytest.approx(0.9, abs=0.05)


def test_the_first_vectors_take_all_of_the_signal_and_none_leave_it():
    writer = SignalWriter(3, Basis(8, (0.1,)), InfinitySettings(basis=8, widths=(0.1,), samples=4))
    new, empty = torch.randn(2, 6, 3), torch.zeros(2, 8, 3)
    begun = writer(empty, new)
    torch.testing.assert_close(
        begun, Fit(writer.basis, 1.0, 0, 6, 0.0).matrix(new) @ writer.gate(new)
    )
    torch.testing.assert_close(writer(begun, new[:, :0]), begun)
    half = torch.stack((begun[0], empty[1]))
    torch.testing.assert_close(writer(half, new)[0], writer(begun, new)[0])
    torch.testing.assert_close(writer(half, new)[1], begun[1])
