import json
from dataclasses import fields

import numpy as np
import pytest
import torch

from stages.memory.small_network import SmallNetwork, fit_network

N = 600


def inputs(seed: int = 0) -> torch.Tensor:
    return torch.randn(N, 4, generator=torch.Generator().manual_seed(seed)).double()


def fit(x: torch.Tensor, y: torch.Tensor, seed: int = 0) -> SmallNetwork:
    return fit_network(
        SmallNetwork.constant(x, 0.3, seed), x, lambda rows, o: (o - y[rows]).square().mean(), seed
    )


def test_it_begins_at_one_number_for_all_whatever_the_seed():
    for seed in range(3):
        network = SmallNetwork.constant(inputs(), 0.3, seed)
        assert torch.equal(network.outputs(inputs()), torch.full((N,), 0.3, dtype=torch.float64))


def test_outputs_are_those_of_the_formula():
    x = inputs()
    network = fit(x, x[:, 0])
    held = {name: np.array(value) for name, value in network.record.items()}
    standard = (x.numpy() - held["mean"]) / held["spread"]
    want = held["offset"] + np.tanh(standard @ held["inner"].T + held["bias"]) @ held["outer"]
    np.testing.assert_allclose(network.outputs(x).numpy(), want, rtol=1e-10, atol=1e-12)


def test_what_is_to_be_small_becomes_smaller():
    x = inputs()
    y = torch.tanh(x[:, 0] - x[:, 1])
    assert (fit(x, y).outputs(x) - y).square().mean() < 0.3 * (0.3 - y).square().mean()


def test_the_same_arguments_give_the_same_network_wherever_it_is_fitted():
    x = inputs()
    with torch.inference_mode():
        inside = fit(x, x[:, 1])
    outside = fit(x, x[:, 1])
    assert inside.record == outside.record
    assert fit(x, x[:, 1], seed=1).record != outside.record


def test_where_it_is_fitted_from_stays_as_it_was():
    x = inputs()
    begun = SmallNetwork.constant(x, 0.3)
    before = begun.record
    fit_network(begun, x, lambda rows, o: (o - x[rows, 0]).square().mean())
    assert begun.record == before and not begun.inner.requires_grad


def test_a_network_goes_through_json_with_all_its_digits():
    network = fit(inputs(), inputs(1)[:, 0])
    again = SmallNetwork.of_record(json.loads(json.dumps(network.record)))
    for field in fields(network):
        assert torch.equal(getattr(again, field.name), getattr(network, field.name))
        assert getattr(again, field.name).dtype == torch.float64


@pytest.mark.parametrize("value", [0.0, 7.0, -1e6])
def test_inputs_that_never_change_leave_finite_numbers(value):
    x = inputs()
    x[:, 1] = value
    assert fit(x, x[:, 0]).outputs(x).isfinite().all()
