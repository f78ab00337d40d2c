"""Commands that manifests keep: typed again, in a store of their own too, they name the same
artifacts.
"""

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from memlm_cli.reproduce import command_line, script
from pipelines.options import command_words, on_top_of_preset
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.pages.lineage import Member, find_reports, lineage_of
from stages.training.config import TrainConfig
from stages.training.presets import choose_preset
from tests.cli.conftest import Memlm


def test_a_pipeline_is_made_again_from_its_manifests(
    memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "train.toml"
    settings.write_text("[model]\nlayers = 1\nwidth = 8\nheads = 2\n")
    memlm("tokenize", "--train", text, "--test", text, "--tokenizer", "word", "--name", "words")
    memlm(
        "train",
        "tokens/words",
        "--config",
        settings,
        "--steps",
        2,
        "--model",
        "tiny",
        "--name",
        "lm",
    )
    index = memlm(
        "build-index", memlm("build-datastore", "model/lm").reference, "--index", "flat"
    ).reference
    report = memlm("evaluate", index, "--memory", "external:k=2,lambda=0.5", "--exclude", "self")
    settings.unlink()
    memlm("tokenize", "--train", text, "--name", "words")  # a name may be given to another
    members = lineage_of(find_reports([report.reference], Store(tmp_path / "store")))
    assert len(members) == 5
    for reference, member in members.items():
        line = command_line(member).replace("\\\n", "")
        assert memlm(*shlex.split(line)[1:], "--store", tmp_path / "again").reference == reference
    assert all(f"\n# {reference}" in script(members) for reference in members)


def test_the_words_of_a_command_are_arguments_options_and_set() -> None:
    assert command_words(
        "tokenize", {"source": ["a.txt", "b.txt"], "tokenizer": "tokens/1"}, {"tokenizer": "given"}
    ) == (*("tokenize", "a.txt", "b.txt", "--tokenizer", "tokens/1"),)
    asked = {
        "memory": ["long:size=5", "knn-lm"],
        "save_token_scores": True,
        "context": 64,
        "stride": None,
    }
    assert command_words("evaluate", {"source": "model/lm", "baseline": "report/2"}, asked) == (
        *(
            "evaluate",
            "model/lm",
            "--baseline",
            "report/2",
            "--memory",
            "long:size=5",
            "--memory",
            "knn-lm",
        ),
        *("--save-token-scores", "--context", "64"),
    )
    assert command_words("evaluate", {"source": "model/lm"}, {"memory": []})[2:] == (
        "--memory",
        "none",
    )
    assert command_words("import-model", {"source": "tokens/1", "checkpoint": "hf:gpt2"}, {})[
        1:
    ] == (*("hf:gpt2", "tokens/1"),)
    words = command_words(
        "train", {"source": "tokens/1"}, {"model": {"width": 64}, "steps": "auto"}, "tiny"
    )
    assert words[2:] == ("--model", "tiny", "--set", "model.width=64")


def test_a_training_without_a_preset_is_said_on_top_of_the_usual_one() -> None:
    settings = {"model": {"backbone": "lstm", "width": 32}, "steps": 7}
    said = on_top_of_preset(TrainConfig.model_validate(settings).stored())
    assert (said["model"]["backbone"], said["model"]["width"], said["steps"]) == ("lstm", 32, 7)
    usual = TrainConfig.model_validate(choose_preset(None, "lstm"))
    assert on_top_of_preset(usual.stored()) == {"model": {"backbone": "lstm"}}


def test_the_machine_and_the_store_chose_what_is_added() -> None:
    def line(kind: str, command: list[str], previous: str | None = None, **config: Any) -> str:
        inputs = {} if previous is None else {"previous": SimpleNamespace(reference=previous)}
        manifest = SimpleNamespace(command=command, inputs=inputs)
        artifact = cast(Artifact, SimpleNamespace(kind=kind, manifest=manifest, config=config))
        return command_line(Member(f"{kind}/1", artifact))

    dated = line("report", ["evaluate", "$(date)"], precision="fp32")
    assert shlex.split(dated) == ["memlm", "evaluate", "$(date)", "--precision", "fp32"]
    changed = line("index", ["build-index", "datastore/2"], "index/1")
    assert changed.split() == ["memlm", "build-index", "datastore/2", "--update", "index/1"]
    assert command_line(Member("model/1", None)).startswith("#")
