"""Parts from outside the package: settings, code and one line of a registry, and the whole pipeline
runs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, Self

import pytest
import torch
from torch import Tensor, nn

from stages.examples.cutting import WindowSettings
from stages.examples.examples import Batch
from stages.methods import METHODS
from stages.methods.config import MethodSettings
from stages.methods.method import (
    Carried,
    Loss,
    Method,
    ParameterGroup,
    Update,
)
from stages.models import BACKBONES
from stages.models.backbone import Backbone, Encoding, Inputs
from stages.models.config import BackboneConfig, Reads, StateArray
from stages.models.language_model import LanguageModel
from stages.registry import Part
from tests.cli.conftest import Memlm, logs, memlm, text  # noqa: F401
from tests.stages.methods.contract import MethodContract
from tests.stages.models.backbones.contract import BackboneContract

SMALL = ("--steps", 4, "--segment-length", 16, "--batch-tokens", 32, "--set", "model.width=8")


class AverageConfig(BackboneConfig):
    """A decaying average of the embeddings."""

    way = "stream"

    backbone: Literal["average"] = "average"
    decay: float = 0.5

    @property
    def reads(self) -> Reads:
        return Reads()

    def state_spec(self, context: int) -> dict[str, StateArray]:
        return {"average": StateArray((1, self.width))}

    def sizes(self, segment_length: int) -> dict[str, Any]:
        return {}

    def reading(self, windows: WindowSettings) -> Self:
        return self


class Average(Backbone):
    """h_t = decay h_{t-1} + W x_t; the size of W is held down by an auxiliary loss."""

    def __init__(self, config: AverageConfig) -> None:
        super().__init__()
        self.decay, self.mix = config.decay, nn.Linear(config.width, config.width)

    def read(self, inputs: Inputs) -> Encoding:
        embedded = inputs.embedded
        hidden = (
            torch.zeros_like(embedded[:, 0]) if inputs.state is None else inputs.state["average"]
        )
        rows = []
        for x in self.mix(embedded).unbind(1):
            hidden = self.decay * hidden + x
            rows.append(hidden)
        return Encoding(
            torch.stack(rows, 1), None, {"average": hidden}, 1e-3 * self.mix.weight.square().sum()
        )


class DampedConfig(MethodSettings):
    """Gradients that are multiplied by a share, and a penalty of confidence."""

    method: Literal["damped"] = "damped"
    share: float = 0.9
    penalty: float = 0.01


class Damped(Method[DampedConfig]):
    """Plain loss with a penalty of small entropies, the vocabulary at half the learning rate, and a
    step of its own.
    """

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [
            ParameterGroup(list(model.backbone.parameters())),
            ParameterGroup(list(model.vocabulary.parameters()), lr_factor=0.5),
        ]

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> Loss:
        encoding = model.read(batch, carried.state)
        hidden = encoding.hidden.flatten(0, 1)
        mean = model.loss(hidden, batch.targets.flatten())
        log_p = model.log_probs(hidden, with_gradients=True)
        confidence = (log_p.exp() * log_p).sum(-1).mean()
        penalty = self.settings.penalty * confidence
        return Loss.of(mean, encoding, carried=Carried(encoding.state), auxiliary=[penalty])

    def step(self, update: Update) -> Tensor:
        losses = []
        for part in update.batches():
            loss = part.weighted(update.loss(part))
            update.backward(self.settings.share * loss)
            losses.append(loss.detach())
        update.change_weights()
        return torch.stack(losses).sum()


@pytest.fixture
def backbone(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(
        BACKBONES.targets, "average", Part(f"{__name__}:AverageConfig", f"{__name__}:Average")
    )
    return "average"


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(
        METHODS.targets, "damped", Part(f"{__name__}:DampedConfig", f"{__name__}:Damped")
    )
    return "damped"


class TestBackbone(BackboneContract):
    """Keeps the contract of every backbone."""


class TestMethod(MethodContract):
    """Keeps the contract of every method."""


def test_the_whole_pipeline_runs_with_parts_from_outside(
    backbone: str,
    name: str,
    memlm: Memlm,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = memlm("tokenize", "--train", text, "--valid", text, "--test", text).reference
    own = (
        "--method",
        name,
        "--set",
        "memory.share=0.2",
        "--backbone",
        backbone,
        "--set",
        "model.decay=0.7",
    )
    model = memlm("train", tokens, *own, *SMALL).reference
    assert memlm("train", tokens, *own, *SMALL).reference == model
    datastore = memlm("build-datastore", model).reference
    index = memlm("build-index", datastore).reference
    report = memlm("evaluate", index, "--exclude", "self", "--json")
    assert report.code == 0, report.err
    made = json.loads(report.out)
    assert 1 < made["metrics"]["perplexity"] < 1000
    manifest = json.loads(memlm("artifacts", "show", model).out)
    assert [role for role, _ in manifest["outside_files"]] == [f"part.{__name__}"]
    page = memlm("report", made["reference"], "--output", tmp_path / "page.html")
    assert page.code == 0, page.err
    html = (tmp_path / "page.html").read_text("utf-8")
    for said in ("--method damped", "--backbone average", "model.decay=0.7", "memory.share=0.2"):
        assert said in html
    monkeypatch.delitem(BACKBONES.targets, backbone)
    checked = memlm("artifacts", "verify", "--json")
    assert checked.code == 4
    states = {
        one["reference"]: (one["damaged"], one["unchecked"]) for one in json.loads(checked.out)
    }
    assert states[model] == (False, True) and states[tokens] == (False, False)
    # What is said of a model that is not known here, or gone, is left out of the page, and no more.
    assert memlm("compare", *[made["reference"]] * 3).code == 4
    for why in ("unknown", "gone"):
        again = memlm("report", made["reference"], "--output", tmp_path / f"{why}.html")
        assert (again.code, again.err) == (0, "")
        memlm("artifacts", "rm", "--force", model)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--backbone", "averge"), "There is no backbone 'averge'; did you mean 'average'?"),
        (
            ("--backbone", "average", "--set", "model.decya=1"),
            "no setting 'model.decya'; did you mean 'model.decay'?",
        ),
        (("--method", "dampd"), "There is no method 'dampd'; did you mean 'damped'?"),
        (
            ("--method", "damped", "--set", "memory.shrae=1"),
            "no setting 'memory.shrae'; did you mean 'memory.share'?",
        ),
    ],
)
def test_messages_know_them(
    backbone: str,
    name: str,
    memlm: Memlm,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    ended = memlm("train", "tokens/none", *arguments)
    assert ended.code == 2
    assert words in " ".join(ended.err.split())


METHOD = '''
from typing import Annotated, Literal

from stages.config import Spelling
from stages.methods import METHODS
from stages.methods.settings import LmConfig
from stages.registry import Part


class HeldConfig(LmConfig):
    """A method with a setting that is an option."""

    method: Literal["held"] = "held"
    hold: Annotated[float, Spelling("SHARE")] = 0.25
    """Share of the gradients that is held back."""
    steps: Annotated[int, Spelling("N")] = 1
    """The name of an option that the stage has."""


METHODS.targets["held"] = Part("my_methods:HeldConfig", "stages.methods.lm:LanguageModeling")
'''
ASK = """
from memlm_cli.work.stage import prepare
from memlm_cli.options import Common
from pipelines.options import command_words, options_of
from stages.training.config import TrainConfig

work = prepare("train", {"method": "held", "hold": 0.5, "steps": "7"}, Common())
print(work.config.memory.hold, work.config.memory.steps, work.config.steps)
print(options_of(TrainConfig)["hold"].help)
print(*command_words("train", {"source": "tokens/a"}, work.typed))
"""


def test_a_setting_with_a_spelling_is_an_option_of_train(tmp_path: Path) -> None:
    (tmp_path / "my_methods.py").write_text(METHOD, "utf-8")
    environment = os.environ | {
        "PYTHONPATH": f"{tmp_path}:{Path.cwd()}",
        "MEMLM_PARTS": "my_methods",
    }
    asked = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True
    )
    assert asked.returncode == 0, asked.stderr
    numbers, help, words = asked.stdout.splitlines()
    assert numbers == "0.5 1 7"
    assert help == "Share of the gradients that is held back."
    assert words == "train tokens/a --method held --hold 0.5 --steps 7"
