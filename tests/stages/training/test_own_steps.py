"""What a method may decide about an update: which parameters learn how fast, and the whole step."""

import pytest
import torch

from stages.methods import METHODS
from stages.methods.lm import LanguageModeling
from stages.methods.method import ParameterGroup
from stages.registry import Part
from tests.builders.training import outcome, trainer


class Grouped(LanguageModeling):
    """The vocabulary learns nothing, though it is said to learn."""

    def parameter_groups(self, model):
        vocabulary, backbone = (
            list(part.parameters()) for part in (model.vocabulary, model.backbone)
        )
        return [ParameterGroup(backbone), ParameterGroup(vocabulary, lr_factor=0.0)]


class OwnStep(LanguageModeling):
    """Counts its steps, which are the plain ones."""

    steps = 0

    def step(self, update):
        self.steps += 1
        return super().step(update)


@pytest.fixture
def method(monkeypatch):
    def register(code):
        part = Part("stages.methods.settings:LmConfig", f"{__name__}:{code.__name__}")
        monkeypatch.setitem(METHODS.targets, "throw-away", part)
        return "throw-away"

    return register


def test_groups_of_parameters_learn_at_their_own_rate(method, tmp_path):
    run = trainer(tmp_path, method=method(Grouped), steps=3)
    before = {
        name: parameter.detach().clone() for name, parameter in run.run.model.named_parameters()
    }
    run.train()
    for name, parameter in run.run.model.named_parameters():
        assert torch.equal(parameter, before[name]) == name.startswith("vocabulary."), name


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_of_its_own_may_be_the_plain_one(method, accumulate, tmp_path):
    results = []
    for name in ("lm", method(OwnStep)):
        folder = tmp_path / name
        folder.mkdir()
        run = trainer(folder, method=name, steps=6, accumulate=accumulate)
        run.train()
        results.append(outcome(folder, run))
    assert results[0] == results[1]
    assert run.run.method.steps == 6
