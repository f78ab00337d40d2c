"""What the documents show works as shown."""

import re
import shlex
import tomllib
from functools import reduce
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from textwrap import indent

import pytest
import typer

from memlm_cli.app import app
from pipelines.recipe import load_recipe, shipped_recipes
from pipelines.settings import assignment, merged
from stages.adaptation.settings import split_dynamic
from stages.memory.readers import READERS
from stages.models.layers import STREAM_ATTENTION
from stages.retrieval.grammar import parse_readings
from stages.search.config import IndexConfig
from stages.tasks.config import EvaluateTasksConfig
from stages.tasks.readings import Mbpa
from stages.training.config import TrainConfig
from stages.training.presets import load_preset
from stages.validation import validated

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DATA = sorted((ROOT / "docs/results/data").glob("*/*.toml"))
"""Tables of results, whose commands are documents, too."""
GROUP = typer.main.get_command(app)


def shown_commands(text: str) -> list[list[str]]:
    """Every `memlm …` of the indented blocks, continued lines joined, pipes cut."""
    blocks = re.sub(r"\\\n\s*", "", "\n".join(re.findall(r"^    .*$", text, re.M)))
    parts = [
        part.strip()
        for line in blocks.splitlines()
        for part in re.split(r"\||&&", line.partition(" # ")[0])
    ]
    return [unplanned(shlex.split(part)) for part in parts if re.match(r"memlm [a-z]", part)]


def text_of(document: Path) -> str:
    """A page as it stands; of a file of data its command, as a page would show it."""
    text = document.read_text("utf-8")
    return (
        text if document.suffix == ".md" else indent(tomllib.loads(text).get("command", ""), "    ")
    )


def unplanned(words: list[str]) -> list[str]:
    """The command that `memlm plan` is asked about; others stay as they are."""
    if words[1] != "plan" or words[2].startswith("-"):
        return words
    return ["memlm", *([] if words[2] in GROUP.commands else ["run"]), *words[2:]]


def options_of(words: list[str]) -> set[str]:
    command = GROUP
    for word in words[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    assert command is not GROUP, f"no such command: {' '.join(words)}"
    return {name for parameter in command.params for name in parameter.opts} | {"--help"}


@pytest.mark.parametrize("document", DOCUMENTS + DATA, ids=lambda path: path.name)
def test_commands_and_their_options_exist(document: Path) -> None:
    for words in shown_commands(text_of(document)):
        unknown = {word for word in words if word.startswith("--")} - options_of(words)
        assert not unknown, f"{document.name}: {' '.join(words)}"


def values_of(words: list[str], option: str) -> list[str]:
    """What stands after each occurrence of an option."""
    return [value for name, value in pairwise(words) if name == option]


@pytest.mark.parametrize("document", DOCUMENTS + DATA, ids=lambda path: path.name)
def test_memories_presets_recipes_and_settings_of_training_exist(document: Path) -> None:
    for words in shown_commands(text_of(document)):
        if words[1] == "evaluate-tasks":
            EvaluateTasksConfig.model_validate({"memory": values_of(words, "--memory") or ["none"]})
        else:
            parse_readings(split_dynamic(values_of(words, "--memory"))[1])
        for name in values_of(words, "--model") if words[1] == "train" else []:
            load_preset(name)
        if words[1] == "run" and not words[2].endswith(".toml"):
            assert words[2] in shipped_recipes()
        if words[1] == "train":
            methods = [{"method": method} for method in values_of(words, "--method")]
            backbones = [{"model": {"backbone": name}} for name in values_of(words, "--backbone")]
            settings = [assignment(value) for value in values_of(words, "--set")]
            validated(TrainConfig, reduce(merged, methods + backbones + settings, {}))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text("utf-8")):
        assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_recipe_of_the_documents_is_valid(tmp_path: Path) -> None:
    (recipe,) = re.findall(
        r"```toml\n(.*?)```", (ROOT / "docs/how-to/recipes.md").read_text("utf-8"), re.S
    )
    path = tmp_path / "recipe.toml"
    path.write_text(recipe)
    assert list(load_recipe(path, {"train": ["a.txt"]}, {}).stages) == ["tokens", "model"]


def test_the_parts_of_contributing_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "memlm_cli/toplevel"))
    for registry in (STREAM_ATTENTION, READERS):
        monkeypatch.setattr(registry, "targets", dict(registry.targets))
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.S
    ):
        exec(block, {})
    assert "summary" in STREAM_ATTENTION.targets and "mean" in READERS.targets


@pytest.mark.parametrize(
    ("preset", "decay"),
    [
        ("wikitext2-8x128-xl", 0.05),
        ("enwik8-small-xl", 0.05),
        ("spalm-wikitext103", 0.0),
        ("spalm-enwik8", 0.0),
    ],
)
def test_presets_decay_the_gate_of_spalm_as_its_page_says(preset: str, decay: float) -> None:
    optimizer = validated(TrainConfig, load_preset(preset)).optimizer
    assert optimizer.weight_decay == decay
    assert f"by {decay:g}".replace("0.", ".") in (ROOT / "docs/explanation/spalm.md").read_text(
        "utf-8"
    )


def test_commands_are_found_in_the_documents() -> None:
    assert len(shown_commands((ROOT / "docs/how-to/evaluate.md").read_text("utf-8"))) > 10


def test_settings_without_an_option_are_on_the_page_of_settings_with_a_sentence() -> None:
    found = spec_from_file_location("settings_page", ROOT / "docs/site/settings.py")
    assert found is not None and found.loader is not None
    page = module_from_spec(found)
    found.loader.exec_module(page)
    said = dict(re.findall(r"^\| `([\w.]+)` \|[^|]*\| (\w.*\w.*) \|$", page.settings(), re.M))
    inside = {
        "model.attention": ("gate_bias", "gate_lr", "longest_distance"),
        "model.lookup": ("table_lr",),
        "model.feed_forward": ("query_norm",),
        "model": ("shared_controller", "summary_tokens"),
        "memory": ("recovery_batch", "consolidation_batch"),
    }
    named = [f"{group}.{name}" for group, names in inside.items() for name in names]
    assert said.keys() >= {*named, *IndexConfig.not_options, *Mbpa.model_fields} - {"name"}
