"""What every rule of learning promises; a test of a rule inherits it."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from stages.adaptation.settings import Numbers, parse_dynamic
from stages.adaptation.update_rule import UpdateRule
from stages.models.language_model import LanguageModel, new_model

VOCABULARY = 9
NUMBERS = Numbers(rate=0.01, decay=0.05)


def small_model() -> LanguageModel:
    torch.manual_seed(0)
    settings = {"backbone": "transformer", "layers": 1, "width": 8, "heads": 2}
    return new_model(VOCABULARY, 16, **settings, ffn_width=16, max_positions=16).eval()


class UpdateRuleContract:
    """Subclasses give the class of the rule, and the text of its settings."""

    rule: type[UpdateRule]
    spec: str

    def opened(self, model: LanguageModel) -> UpdateRule:
        torch.manual_seed(3)
        rms = {name: torch.rand_like(one) for name, one in model.named_parameters()}
        return self.rule(model, parse_dynamic(self.spec), rms)

    @pytest.fixture
    def model(self) -> LanguageModel:
        return small_model()

    def gradients(self, rule: UpdateRule, seed: int) -> Sequence[Tensor]:
        random = torch.Generator().manual_seed(seed)
        return [torch.randn(one.shape, generator=random) for one in rule.learning]

    def hidden(self, model: LanguageModel) -> Tensor:
        tokens = torch.arange(VOCABULARY)[None]
        with torch.no_grad():
            return model.encode(tokens).hidden

    def test_it_begins_with_the_model_of_training(self, model: LanguageModel) -> None:
        before = self.hidden(model)
        rule = self.opened(model)
        rule.begin(NUMBERS)
        assert torch.equal(self.hidden(model), before)

        rule.update(self.gradients(rule, 1))
        assert not torch.equal(self.hidden(model), before), "it learns"
        rule.begin(NUMBERS)
        assert torch.equal(self.hidden(model), before), "all is forgotten"

    def test_it_goes_on_from_its_state_bit_for_bit(self, model: LanguageModel) -> None:
        rule = self.opened(model)
        rule.begin(NUMBERS)
        for seed in range(3):
            rule.update(self.gradients(rule, seed))
        state = rule.state()
        rule.update(self.gradients(rule, 3))
        want = {name: one.clone() for name, one in rule.state().items()}

        rule.begin(NUMBERS)
        rule.load(state, NUMBERS)
        rule.update(self.gradients(rule, 3))
        found = rule.state()
        assert found.keys() == want.keys()
        assert all(torch.equal(found[name], want[name]) for name in want)

    def test_its_state_has_as_many_numbers_as_it_says(self, model: LanguageModel) -> None:
        said = self.rule.state_numbers(model, parse_dynamic(self.spec))
        rule = self.opened(model)
        rule.begin(NUMBERS)
        rule.update(self.gradients(rule, 0))
        held = sum(one.numel() for one in rule.state().values() if one.dim())
        assert held == said
