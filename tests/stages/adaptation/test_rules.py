"""Both rules keep the contract, and update as their equations say."""

import numpy as np
import torch

from stages.adaptation.decay_to_prior import DecayToPrior
from stages.adaptation.low_rank import LowRankAdam
from stages.adaptation.settings import Numbers
from stages.models.language_model import LanguageModel
from tests.stages.adaptation.contract import NUMBERS, UpdateRuleContract, small_model


class TestDecayToPrior(UpdateRuleContract):
    rule = DecayToPrior
    spec = "dynamic:rate=0.01,decay=0.05,epsilon=0.1"

    def test_it_is_the_equation(self, model: LanguageModel) -> None:
        named = dict(model.named_parameters())
        trained = {name: one.detach().double().numpy().copy() for name, one in named.items()}
        numbers = Numbers(rate=0.01, decay=0.9)
        rule = self.opened(model)
        torch.manual_seed(3)
        rms = {name: torch.rand_like(one).double().numpy() for name, one in named.items()}
        mean = np.mean([one.mean() for one in rms.values()])
        rule.begin(numbers)
        theta = {name: one.copy() for name, one in trained.items()}
        for seed in range(3):
            gradients = self.gradients(rule, seed)
            rule.update(gradients)
            for (name, old), gradient in zip(theta.items(), gradients, strict=True):
                # With so large a decay the share of the way back is cut at 1 for some weights.
                share = np.minimum(1, 0.9 * rms[name] / mean)
                step = 0.01 * gradient.double().numpy() / (rms[name] + 0.1 * mean)
                theta[name] = old - step + share * (trained[name] - old)
        assert any((0.9 * one / mean > 1).any() for one in rms.values())
        for name, parameter in named.items():
            found = parameter.detach().double().numpy()
            np.testing.assert_allclose(found, theta[name], rtol=1e-5, atol=1e-5)

    def test_a_rate_of_0_leaves_every_bit(self, model: LanguageModel) -> None:
        before = {name: one.detach().clone() for name, one in model.named_parameters()}
        rule = self.opened(model)
        rule.begin(Numbers(rate=0, decay=0.3))
        rule.update(self.gradients(rule, 0))
        assert all(torch.equal(one, before[name]) for name, one in model.named_parameters())

    def test_a_weight_without_a_gradient_only_goes_back(self, model: LanguageModel) -> None:
        rule = self.opened(model)
        rule.begin(NUMBERS)
        rule.update(self.gradients(rule, 0))
        first = next(iter(rule.state().values()))
        rule.update([None, *self.gradients(rule, 1)[1:]])
        after = next(iter(rule.state().values()))
        rule.begin(NUMBERS)
        trained = next(iter(rule.state().values()))
        assert ((after - trained).abs() <= (first - trained).abs()).all()


class TestLowRankAdam(UpdateRuleContract):
    rule = LowRankAdam
    spec = "dynamic:rate=0.01,what=lora,rank=2"

    def test_weights_of_training_stay(self, model: LanguageModel) -> None:
        before = {name: one.detach().clone() for name, one in model.named_parameters()}
        rule = self.opened(model)
        rule.begin(NUMBERS)
        rule.update(self.gradients(rule, 0))
        named = dict(model.named_parameters())
        for name, one in before.items():
            kept = named.get(name, named.get(name.replace(".weight", ".base_layer.weight")))
            if kept is None:
                kept = named[name.replace(".bias", ".base_layer.bias")]
            assert torch.equal(kept, one)

    def test_factors_are_the_same_in_every_run(self) -> None:
        states = []
        for seed in (7, 8):
            rule = self.opened(small_model())
            torch.manual_seed(seed)
            rule.begin(NUMBERS)
            states.append(rule.state())
        assert all(torch.equal(one, states[1][name]) for name, one in states[0].items())
