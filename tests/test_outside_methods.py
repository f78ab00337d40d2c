"""A method for text from outside the package: one module, with an input and a state of its own,
goes through the command.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from stages.artifacts.store import Store
from stages.methods import METHODS
from stages.training import INPUTS
from stages.training.loop import Trainer
from tests.builders.kills import killed
from tests.cli.conftest import Memlm, logs, memlm, text  # noqa: F401
from tests.stages.small_tasks import bytes_of

MODULE = '''
"""Learns the targets alone that a datastore holds seldom."""

import json
from typing import ClassVar, Literal

import numpy as np
import torch

from stages.errors import UsageError
from stages.methods import METHODS
from stages.methods.config import MethodSettings
from stages.methods.method import Carried, Loss, Method
from stages.registry import Part
from stages.training import INPUTS
from stages.training.inputs import TrainingInput


class ValuesInput(TrainingInput):
    """Tokens of a datastore, int32 [N]."""

    tokens_role = "corpus"
    missing = "Method {method!r} reads a datastore, and {source} is none: memlm build-datastore MODEL"

    def require(self, source, config):
        if source.config["split"] != "train":
            raise UsageError(f"{source.reference} is not of the train split.")


def open_values(inputs, config, folder):
    return np.asarray(inputs["datastore"].zarr("datastore.zarr")["values"][:])


class RareSettings(MethodSettings):
    """Targets that are seldom in a datastore."""

    takes: ClassVar[tuple[str, ...]] = ("datastore",)

    method: Literal["rare"] = "rare"
    most: int = 30
    """Occurrences in the datastore of a token that is learnt, at most."""


class Rare(Method[RareSettings]):
    """The loss is the mean over rare targets; counts those that it leaves out."""

    def __init__(self, settings, side_inputs=None):
        super().__init__(settings, side_inputs)
        self._left_out = 0
        self._counts = torch.from_numpy(np.bincount(self.side_inputs["datastore"]))

    def loss(self, model, batch, carried):
        encoding = model.read(batch, carried.state)
        rare = self._counts[batch.targets] <= self.settings.most
        if not rare.any():  # a batch without rare targets is learnt whole
            rare = torch.ones_like(rare)
        if model.training:
            self._left_out += int((~rare).sum())
        mean = model.loss(encoding.hidden[rare], batch.targets[rare])
        return Loss.of(mean, encoding, carried=Carried(encoding.state))

    def state_dict(self):
        return {"left_out": self._left_out}

    def load_state_dict(self, state):
        self._left_out = state["left_out"]

    def write_files(self, decode, add):
        add("left_out.json").write_text(json.dumps(self._left_out))


INPUTS.targets["datastore"] = Part("my_rare:ValuesInput", "my_rare:open_values")
METHODS.targets["rare"] = Part("my_rare:RareSettings", "my_rare:Rare")
'''
SMALL = ("--steps", 8, "--segment-length", 16, "--batch-tokens", 32, "--set", "model.width=8")


@pytest.fixture
def rare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the method, whose module is on the path and is named by the environment."""
    (tmp_path / "my_rare.py").write_text(MODULE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MEMLM_PARTS", "my_rare")
    monkeypatch.setitem(METHODS.targets, "rare", METHODS.targets["lm"])  # both are taken back
    monkeypatch.setitem(INPUTS.targets, "datastore", INPUTS.targets["batches"])
    sys.modules.pop("my_rare", None)
    import_module("my_rare")  # a process imports what the environment names only once
    return "rare"


def test_a_method_of_one_module_is_trained_killed_resumed_and_scored_by_the_command(
    rare: str,
    memlm: Memlm,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    update = Trainer._update
    models = []
    for name, kills in (("whole", ()), ("parts", (2, 5))):
        monkeypatch.setenv("MEMLM_STORE", str(tmp_path / name))
        tokens = memlm("tokenize", "--train", text, "--valid", text, "--test", text).reference
        datastore = memlm("build-datastore", memlm("train", tokens, *SMALL).reference).reference
        command = ("train", datastore, "--method", rare, "--set", "memory.most=30", *SMALL)
        for kill in kills:
            with monkeypatch.context() as patched:
                patched.setattr(
                    Trainer, "_update", lambda trainer, last=kill: killed(trainer, last, update)
                )
                patched.setattr(
                    "stages.training.checkpoint.Saver.is_due", lambda saver, progress: True
                )
                assert memlm(*command).code == 130
        ended = memlm(*command)
        assert ended.code == 0, ended.err
        assert bool(kills) == ("resumed: 5 of 8" in ended.err)
        models.append(Store(tmp_path / name).get(ended.reference))
    whole, parts = models
    assert bytes_of(whole) == bytes_of(parts)
    left_out = json.loads(parts.file("left_out.json").read_text())
    assert 0 < left_out < 8 * 32
    scored = json.loads(memlm("evaluate", parts.reference, "--memory", "none", "--json").out)
    assert 1 < scored["metrics"]["perplexity"] < 1000


def test_a_source_without_its_input_is_named_with_the_command_that_makes_it(
    rare: str, memlm: Memlm, text: Path
) -> None:
    tokens = memlm("tokenize", "--train", text, "--valid", text, "--test", text).reference
    refused = memlm("train", tokens, "--method", rare, *SMALL)
    assert refused.code == 4
    assert "reads a datastore" in refused.err and "memlm build-datastore MODEL" in refused.err
