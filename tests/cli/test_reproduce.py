"""Commands spelled from manifests, without a store."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memlm_cli.reproduce.script import command_line
from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import KINDS
from stages.artifacts.store import Store
from stages.pages.lineage import Member
from stages.training.config import TrainConfig
from stages.training.presets import load_preset, preset_names

READS = {
    "datastore/2": {"encoder": "model/lm", "previous": "datastore/1", "added": "tokens/2"},
    "index/1": {"datastore": "datastore/1"},
    "datastore/1": {"encoder": "model/lm", "corpus": "tokens/1"},
    "model/lm": {"tokens": "tokens/1"},
    "model/gated": {"tokens": "tokens/1", "neighbors": "neighbors/own"},
}


@dataclass
class Held:
    """What of an artifact a command is spelled from."""

    config: dict[str, Any]
    metrics: dict[str, Any] = field(default_factory=dict)
    path: Path = Path("nowhere")
    store: Store = field(default_factory=lambda: Store("nowhere"))
    manifest: Any = None


def spelled(reference: str, inputs: dict[str, str], name: str = "", **config: Any) -> str:
    """The command of an artifact, on one line."""
    others = {other: Member(other, None, inputs=above) for other, above in READS.items()}
    kind = reference.partition("/")[0]
    stage = "update-datastore" if kind == "datastore" and "previous" in inputs else KINDS[kind].command
    stage = "import-model" if kind == "model" and "steps" not in config else stage
    held = Held(config, manifest=SimpleNamespace(stage=stage))
    member = Member(reference, cast(Artifact, held), (name,) if name else (), inputs)
    return command_line(member, others).replace(" \\\n   ", "")


def trained(preset: str, **changes: Any) -> dict[str, Any]:
    return TrainConfig.model_validate(load_preset(preset) | changes).model_dump(mode="json")


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"model": "model/lm", "tokens": "tokens/1"}, "model/lm"),
        ({"model": "model/lm", "tokens": "tokens/2"}, "model/lm --tokens tokens/2"),
        ({"model": "model/lm", "tokens": "tokens/1", "index": "index/1", "encoder": "model/lm"}, "index/1"),
        (
            {"model": "model/xl", "tokens": "tokens/1", "index": "index/1", "encoder": "model/lm"},
            "model/xl --index index/1 --tokens tokens/1",
        ),
        (
            {"model": "model/lm", "tokens": "tokens/1", "neighbors": "neighbors/1", "encoder": "model/lm"},
            "neighbors/1",
        ),
        ({"model": "model/gated", "tokens": "tokens/1", "gate_neighbors": "neighbors/own"}, "model/gated"),
        (
            {"model": "model/gated", "tokens": "tokens/2", "gate_neighbors": "neighbors/2"},
            "model/gated --neighbors neighbors/2 --tokens tokens/2",
        ),
        (
            {"model": "model/gated", "tokens": "tokens/1", "gate_neighbors": "neighbors/own", "index": "index/1"},
            "model/gated --index index/1",
        ),
        (
            {
                **{"model": "model/gated", "tokens": "tokens/1", "gate_neighbors": "neighbors/own"},
                **{"neighbors": "neighbors/9", "index": "index/9"},
            },
            "neighbors/9",
        ),
    ],
)
def test_an_evaluation_names_the_memory_where_it_is_the_models_own(inputs: dict[str, str], words: str) -> None:
    assert spelled("report/1", inputs) == f"memlm evaluate {words}"


def test_settings_become_options_or_else_set() -> None:
    inputs = {"model": "model/lm", "tokens": "tokens/1"}
    config = {"memory": ["long:size=5,lambda=0.1", "knn-lm"], "save_token_scores": True, "context": 64, "stride": None}
    line = spelled("report/1", inputs, "my-name", **config, gate_k=[4, 8])
    assert line == (
        "memlm evaluate model/lm --memory long:size=5,lambda=0.1 --memory knn-lm --save-token-scores --context 64 "
        "--gate-k 4,8 --name my-name"
    )
    line = spelled("report/1", inputs, frequency="split", passage="8:16", reset="document", split="test")
    assert line == "memlm evaluate model/lm --frequency split --passage 8:16 --reset document"
    assert spelled("report/1", inputs, memory=[]) == "memlm evaluate model/lm --memory none"
    baseline = {**inputs, "baseline": "report/2"}
    assert spelled("report/1", baseline, exclude="self") == (
        "memlm evaluate model/lm --baseline report/2 --exclude self"
    )
    line = spelled("index/2", {"datastore": "datastore/1"}, index="IVF8,Flat", probe=4, seed=0)
    assert line == "memlm build-index datastore/1 --index IVF8,Flat --set probe=4"


def test_a_changed_datastore_and_its_index_name_what_they_were_made_from() -> None:
    taken_over = {"key": "hidden", "dtype": "float16", "context": 8, "stride": 8, "reset": "document"}
    line = spelled("datastore/2", READS["datastore/2"], split="train", forget=["3", "5-7"], **taken_over)
    assert line == "memlm update-datastore datastore/1 --add tokens/2 --split train --forget 3 --forget 5-7"
    inputs = {"datastore": "datastore/2", "previous": "index/1"}
    assert spelled("index/2", inputs) == "memlm build-index datastore/2 --update index/1"
    assert spelled("index/2", {"datastore": "datastore/2"}) == "memlm build-index datastore/2 --update none"


def test_a_corpus_is_a_variable_of_its_own() -> None:
    assert spelled("tokens/0a1b", {}, "wiki.2", split=[0.9, 0.05, 0.05], lowercase=True) == (
        'memlm tokenize "${WIKI_2:?file or folder of text}" --split 0.9,0.05,0.05 --lowercase --name wiki.2'
    )
    assert spelled("tokens/0a1b", {"tokenizer": "tokens/1"}, split=[0.8, 0.1, 0.1], tokenizer="given") == (
        'memlm tokenize "${TEXT_0A1B:?file or folder of text}" --tokenizer tokens/1 --split 0.8,0.1,0.1'
    )


def test_what_a_shell_would_expand_is_quoted() -> None:
    line = spelled("report/1", {"model": "model/lm", "tokens": "tokens/1"}, memory=['"${HOME:?}"', "$(date)"])
    assert line == """memlm evaluate model/lm --memory '"${HOME:?}"' --memory '$(date)'"""


@pytest.mark.parametrize("preset", preset_names())
def test_training_names_its_preset_and_what_differs(preset: str) -> None:
    config = trained(preset, seed=7)
    line = spelled("model/1", {"tokens": "tokens/1"}, **config)
    assert "--seed 7" in line
    assert "--set" not in line
    assert f"--model {preset} " in line or preset.startswith("tiny")


def test_training_with_another_method_backbone_or_beginning() -> None:
    config = trained("tiny", method="trime", memory={"temperature": 0.5})
    line = spelled("model/1", {"tokens": "tokens/1"}, **config)
    assert line == "memlm train tokens/1 --method trime --set memory.temperature=0.5 --steps 700"
    line = spelled("model/1", {"tokens": "tokens/1"}, **trained("tiny-lstm"))
    assert line in ("memlm train tokens/1 --backbone lstm --steps 900", "memlm train tokens/1 --model tiny-lstm")
    config = trained("tiny")
    config["model"]["width"] = 64
    assert spelled("model/1", {"tokens": "tokens/1", "init": "model/lm"}, **config) == (
        "memlm train tokens/1 --init-from model/lm --steps 700"
    )
    config = trained("tiny-transformer-xl", method="spalm")
    config["model"] |= {"gate": "scalar", "mem_length": 7, "segment_length": 128}
    line = spelled("model/1", {"neighbors": "neighbors/1", "tokens": "tokens/1", "init": "model/xl"}, **config)
    assert "model.gate=" in line
    assert "--mem-length 7" in line
    assert "segment_length" not in line
    config["model"]["gate_values"] = "scaled"
    assert "gate_values" not in spelled("model/1", {"neighbors": "neighbors/1", "tokens": "tokens/1"}, **config)
    config["model"]["gate_values"] = "raw"
    line = spelled("model/1", {"neighbors": "neighbors/1", "tokens": "tokens/1"}, **config)
    assert '--set model.gate_values="raw"' in line.replace("'", "")
    config = trained("enwik8-small-memorizing")
    for length in (0, config["model"]["attention"]["long_length"]):
        config["model"]["attention"]["long_length"] = length
        line = spelled("model/1", {"tokens": "tokens/1", "init": "model/xl"}, **config)
        assert f"--long-length {length}" in line
        assert "attention" not in line
    config = trained("wikitext2-8x128", method="trime-ext")
    for stored, said in (({"groups": 1}, "--set memory.groups=1"), ({"groups": 4}, "--set memory.groups=4")):
        config["memory"] = {"method": "trime-ext", "key": "ffn-input", **stored}
        line = spelled("model/1", {"batches": "batches/1", "tokens": "tokens/1"}, **config)
        assert "--model wikitext2-8x128 --method trime-ext" in line and said in line, "stored where it is not 1"
    config = trained("tiny-transformer-xl", method="spalm")
    for stored, said in (
        ({"neighbor_dropout": 0.0}, "--set memory.neighbor_dropout=0.0"),
        ({"neighbor_dropout": 0.2}, "neighbor_dropout=0.2"),
    ):
        config["memory"] = {"method": "spalm", "k": 4, "only_gate": False, **stored}
        line = spelled("model/1", {"neighbors": "neighbors/1", "tokens": "tokens/1"}, **config)
        assert said in line, "stored where it is not 0"
    config = trained("tiny")
    config["model"]["width"] = 64
    assert "--set model.width=64" in spelled("model/1", {"batches": "batches/1", "tokens": "tokens/1"}, **config)


@pytest.mark.parametrize(
    ("preset", "words"),
    [("tiny", "--model tiny --method spalm"), ("tiny-transformer-xl", "--method spalm --steps 700")],
)
def test_a_backbone_is_named_that_is_not_the_usual_one_of_the_method(preset: str, words: str) -> None:
    line = spelled("model/1", {"neighbors": "neighbors/1", "tokens": "tokens/1"}, **trained(preset, method="spalm"))
    assert sorted(line.split()) == sorted(f"memlm train neighbors/1 {words}".split())


def test_settings_that_this_version_does_not_know_are_spelled_all_the_same() -> None:
    config = trained("tiny") | {"from_the_past": 3}
    assert "--set from_the_past=3" in spelled("model/1", {"tokens": "tokens/1"}, **config)
