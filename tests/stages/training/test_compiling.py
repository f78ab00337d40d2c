"""Training with compiled forward passes: the same model as without, but for rounding.

Those that compile have processes of their own: functions that check shapes as they do in tests
cannot be compiled.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from stages.errors import UsageError
from stages.models.config import parse_model
from stages.training import compiling
from stages.training.compiling import require_compiler
from tests.builders.training import V, settings, trainer
from tests.stages.training import compiled_run

ROOT = Path(__file__).parents[3]


def able():
    try:
        require_compiler("cpu")
    except UsageError:
        return False
    return True


compiler = pytest.mark.skipif(not able(), reason="nothing can be compiled here")


def trained(folder, backbone, kind, *stop):
    """A run in a folder, which is there afterwards."""
    folder.mkdir(exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "tests.stages.training.compiled_run",
        folder,
        backbone,
        kind,
        *map(str, stop),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


def result(run):
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def rounded(line):
    return {
        **line,
        **{
            name: pytest.approx(line[name], abs=1e-4)
            for name in ("loss", "valid_loss")
            if line[name]
        },
    }


@compiler
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("backbone", "kind"),
    [
        pytest.param("transformer", "compiled", marks=pytest.mark.endurance),
        ("transformer-xl", "traced"),
    ],
)
def test_losses_and_names_are_those_without_but_for_rounding(backbone, kind, tmp_path):
    (tmp_path / "plain").mkdir()
    plain = compiled_run.trained(tmp_path / "plain", backbone, "plain")
    compiled = result(trained(tmp_path / kind, backbone, kind))
    assert compiled["lines"] == [rounded(line) for line in plain["lines"]]
    assert compiled["names"] == plain["names"]
    assert compiled["graphs"] > 0
    if kind == "compiled":  # and a run that was killed goes on to the same bytes
        assert compiled["digest"] != plain["digest"]  # kernels were not made anew
        assert trained(tmp_path / "parts", backbone, "compiled", 11).returncode == 1
        assert result(trained(tmp_path / "parts", backbone, "compiled")) == compiled


class Broken(nn.Module):
    def forward(self, x):
        torch._dynamo.graph_break()
        return x


@compiler
def test_what_cannot_be_compiled_is_not_left_as_it_is():
    part = Broken()
    with pytest.raises(UsageError, match="without --compile"), compiling.Compiled([part]).used():
        part(torch.zeros(2))


def test_a_backbone_with_nothing_to_compile_says_so(tmp_path):
    lstm = parse_model({"backbone": "lstm", "vocab_size": V, "width": 8, "layers": 1})
    with pytest.raises(UsageError, match=r"'lstm'.*--compile"):
        trainer(tmp_path, compile=True, model=lstm)


@pytest.mark.parametrize(
    ("device", "changed", "answer", "missing"),
    [
        ("cpu", "shutil.which", lambda name: None, r"a C\+\+ compiler \(.*\)"),
        ("cuda", "find_spec", lambda name: None, "the package triton"),
        ("cpu", "sysconfig.get_path", lambda name: "/nowhere", "Python's headers"),
    ],
)
def test_it_is_said_what_compiling_needs(device, changed, answer, missing, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(f"{compiling.__name__}.{changed}", answer)
    with pytest.raises(UsageError, match=f"--compile.*{missing}"):
        require_compiler(device)


def test_a_setting_that_is_not_asked_for_is_no_part_of_the_id():
    assert (
        "compile" not in settings().canonical()
        and settings(compile=True).canonical()["compile"] is True
    )
