"""What `memlm import-model` says of checkpoints that cannot be taken over: nothing of them stays in
the store.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from memlm_cli.app import main
from tests.cli.conftest import Ended, Memlm
from tests.stages.pretrained.tiny import saved, saved_gguf

pytest.importorskip("transformers")
WEIGHTS, SETTINGS = "model.safetensors", "config.json"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, `tiny`, and a store with tokens that are its own, and others."""
    folder = tmp_path_factory.mktemp("sound")
    saved(folder / "tiny", "llama")
    (folder / "text.txt").write_text("the cat sat on the mat and the dog sat on the cat\n" * 20)
    for name, tokenizer in (("own", str(folder / "tiny")), ("other", "char")):
        command = [
            "tokenize",
            "--tokenizer",
            tokenizer,
            "--train",
            str(folder / "text.txt"),
            "--name",
            name,
        ]
        assert main([*command, "--store", str(folder / "store")]) == 0
    return folder


@pytest.fixture
def tiny(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the model, in the working folder, beside a copy of the store."""
    shutil.copytree(sound / "tiny", tmp_path / "tiny")
    shutil.copytree(sound / "store", tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tiny"


def weights_changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, {"format": "pt"})


def settings_changed(folder: Path, **settings: object) -> None:
    known = json.loads((folder / SETTINGS).read_text())
    (folder / SETTINGS).write_text(json.dumps(known | settings))


def cut(file: Path, kept: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])


def without_model(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    (folder / "notes.txt").write_text("no model")


def as_gguf(folder: Path) -> None:
    saved_gguf(folder.with_name("tiny.gguf"))
    cut(folder.with_name("tiny.gguf"), 0.5)


UP = "model.layers.1.mlp.up_proj.weight"
DAMAGE: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "a missing tensor": (
        lambda folder: weights_changed(folder, lambda weights: weights.pop(UP)),
        *(3, "tiny lacks weights that its settings ask for: model.layers.1.mlp.up_proj.weight."),
    ),
    "weights that are no numbers": (
        lambda folder: weights_changed(folder, lambda weights: weights[UP].fill_(float("nan"))),
        *(
            3,
            "tiny holds weights that are no numbers (nan or infinite): model.layers.1.mlp.up_proj.weight.",
        ),
    ),
    "fewer rows than types": (
        lambda folder: weights_changed(
            folder,
            lambda weights: weights.update(
                {(name := "model.embed_tokens.weight"): weights[name][:300].clone()}
            ),
        ),
        *(3, "model.embed_tokens.weight is 300x16, expected 320x16"),
    ),
    "weights cut short": (
        lambda folder: cut(folder / WEIGHTS, 0.5),
        3,
        "tiny/model.safetensors is cut short",
    ),
    "a head cut short": (
        lambda folder: cut(folder / WEIGHTS, 0.01),
        3,
        "tiny/model.safetensors is cut short",
    ),
    "no weights": (
        lambda folder: (folder / WEIGHTS).unlink(),
        3,
        "tiny has no weights as safetensors",
    ),
    "no model": (without_model, 3, "tiny is no model: it has no config.json."),
    "a pickle alone": (
        lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"),
        *(3, "tiny has no weights as safetensors, but pytorch_model.bin"),
    ),
    "code of its own": (
        lambda folder: settings_changed(folder, auto_map={"AutoModelForCausalLM": "evil.Model"}),
        *(
            3,
            "tiny wants code of its own to be run (config.json: auto_map), which memlm never does",
        ),
    ),
    "settings that are no JSON": (
        lambda folder: cut(folder / SETTINGS, 0.5),
        3,
        "tiny/config.json is no JSON",
    ),
    "an unknown kind": (
        lambda folder: settings_changed(folder, model_type="telepathy"),
        *(3, "The model of tiny cannot be read: "),
    ),
    "a GGUF file cut short": (as_gguf, 3, "tiny.gguf is cut short or damaged"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_cannot_be_read_is_told_and_leaves_nothing(
    memlm: Memlm, tiny: Path, damage: str
) -> None:
    harm, code, message = DAMAGE[damage]
    harm(tiny)
    checkpoint = "tiny.gguf" if "GGUF" in damage else "tiny"
    refused(memlm("import-model", checkpoint, "tokens/own"), code, message)


def test_tokens_of_another_vocabulary_are_refused(memlm: Memlm, tiny: Path) -> None:
    refused(
        memlm("import-model", "tiny", "tokens/other"),
        4,
        "was not made with the tokenizer of this model",
    )


def test_what_is_not_there_is_told(memlm: Memlm, tiny: Path) -> None:
    expected = "nothing does not exist; expected a folder with a model, a .gguf file, or hf:NAME of the hub."
    refused(memlm("import-model", "nothing", "tokens/own"), 3, expected)


def test_a_plan_of_weights_that_were_cut_short_tells_them(memlm: Memlm, tiny: Path) -> None:
    cut(tiny / WEIGHTS, 0.5)
    settings_changed(tiny, dtype=None)
    ended = memlm("plan", "import-model", "tiny", "tokens/own")
    assert ended.code == 3 and "tiny/model.safetensors" in ended.err, ended.err


def refused(ended: Ended, code: int, message: str) -> None:
    *before, told = ended.err.splitlines()
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert message in told and told.startswith("memlm import-model: "), ended.err
    assert all(line.startswith("import-model: ") for line in before), ended.err
    assert len(told) < 400 and told.count(". ") < 3  # a sentence or two
    made = [path.name for path in Path("store/model").glob("*")]
    assert all(name.endswith(".lock") for name in made), made
