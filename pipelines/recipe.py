"""A recipe: named stages, their settings, and their inputs.

A recipe is a TOML file; `docs/how-to/recipes.md` has one with every part of it.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic import Field

from pipelines.catalogue import (
    check_references,
    config_of,
    names_files,
    reads_artifact,
    stage_of,
)
from pipelines.settings import merged
from stages.artifacts.kinds import COMMANDS, KINDS
from stages.artifacts.store import Store
from stages.config import Settings, StageConfig, read_toml
from stages.errors import UsageError, did_you_mean
from stages.training.presets import load_preset
from stages.validation import validated

SHIPPED = Path(__file__).parent / "recipes"
Files = Mapping[str, Sequence[str]]
"""The user's files for each input of a recipe: a list of files, or one place (a folder, `hf:NAME`).
"""
Reference = str | tuple[str, ...]


class StageRecipe(Settings):
    """One stage of a recipe."""

    command: str
    source: Reference = Field(default=(), alias="from")
    references: dict[str, Reference] = Field(default_factory=dict, alias="with")
    preset: str | None = None
    """Settings by name, under those of `settings` (`train` only)."""
    settings: dict[str, Any] = Field(default_factory=dict)

    @property
    def all_references(self) -> dict[str, Reference]:
        """Everything that the stage reads, the source included."""
        return {"source": self.source, **self.references}


class Recipe(Settings):
    """Stages in the order in which they run."""

    description: str = ""
    time: str = ""
    """Measured time on that hardware; empty if not measured."""
    hardware: str = ""
    inputs: dict[str, str] = Field(default_factory=dict)
    """Name of each list of files that the user gives -> its description."""
    stages: dict[str, StageRecipe] = Field(min_length=1)
    plan: dict[str, Any] = Field(default_factory=dict)
    """Plan of a recipe made for one text and machine: see `pipelines.trial.Plan`."""
    sweep: dict[str, Any] = Field(default_factory=dict)
    """Stage -> setting -> list of values: all combinations are run, see `pipelines.variants`."""

    @property
    def takes(self) -> str:
        """`three minutes on two cores`; empty if not measured."""
        return " on ".join(filter(None, (self.time, self.hardware)))

    def config(self, name: str) -> StageConfig:
        """The settings of a stage, validated. Raises UsageError naming the stage and the setting."""
        stage = self.stages[name]
        preset = load_preset(stage.preset) if stage.preset else {}
        settings = merged(preset, stage.settings)
        return validated(config_of(stage.command), settings, where=f"stage {name!r}")

    def stages_read(self, name: str) -> list[str]:
        """The stages that a stage reads; only earlier stages count."""
        above = set(takewhile(lambda other: other != name, self.stages))
        references = self.stages[name].all_references.values()
        return [value for value in references if isinstance(value, str) and value in above]

    def with_precision(self, precision: str) -> "Recipe":
        """The recipe with one precision for all models."""
        stages = {
            name: stage.model_copy(update={"settings": stage.settings | {"precision": precision}})
            if "precision" in config_of(stage.command).model_fields
            else stage
            for name, stage in self.stages.items()
        }
        return self.model_copy(update={"stages": stages})


def shipped_recipes() -> list[str]:
    """Names of the recipes that come with memlm."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_recipe(path: Path) -> Recipe:
    """A recipe as in its file, without the user's files. Raises: UsageError if it is not a recipe."""
    return validated(Recipe, read_toml(path), where=str(path))


def find_recipe(name: str) -> Path:
    """The file of a recipe: a path, or the name of a shipped one. Raises UsageError if it is
    neither.
    """
    path = Path(name)
    if path.suffix == ".toml" or (path.exists() and not path.is_dir()):
        return path
    if name not in shipped_recipes():
        raise UsageError(
            f"There is no recipe {name!r}; {did_you_mean(name, shipped_recipes())} (memlm recipes)"
        )
    return SHIPPED / f"{name}.toml"


def load_recipe(path: Path, files: Files, overrides: Mapping[str, Any]) -> Recipe:
    """Read a recipe, insert the user's files and settings, and check all of it.

    Args:
        path: the TOML file.
        files: the files of each name in `[inputs]`.
        overrides: settings by stage, which win over those of the recipe.
    Raises: UsageError for anything that could not run.
    """
    return parsed_recipe(read_toml(path), files, overrides, path)


def parsed_recipe(
    values: dict[str, Any], files: Files, overrides: Mapping[str, Any], path: Path
) -> Recipe:
    """Same as `load_recipe`, from the parsed content of the file."""
    recipe = _with_files(_parsed(values, overrides, path), files, path)
    _check(recipe)
    stages = {name: _with_paths(stage, recipe.stages) for name, stage in recipe.stages.items()}
    return recipe.model_copy(update={"stages": stages})


def _parsed(values: dict[str, Any], overrides: Mapping[str, Any], path: Path) -> Recipe:
    stages = values.get("stages")
    if isinstance(stages, dict) and overrides:
        _check_names("stage", overrides, stages)
        for name, settings in overrides.items():
            stages[name] = merged(stages[name], {"settings": settings})
    return validated(Recipe, values, where=str(path))


def _check_names(what: str, names: Mapping[str, Any], legal: Mapping[str, Any]) -> None:
    for name in names:
        if name not in legal:
            raise UsageError(
                f"The recipe has no {what} {name!r}; {did_you_mean(name, legal or ('none',))}"
            )


def _with_files(recipe: Recipe, files: Files, path: Path) -> Recipe:
    named_files = {name: value for name, value in files.items() if value}
    _check_names("input", named_files, recipe.inputs)
    missing = [name for name in recipe.inputs if name not in named_files]
    if missing:
        needed = " ".join(f"--{name} FILE" for name in missing)
        about = "; ".join(f"{name}: {recipe.inputs[name]}" for name in missing)
        raise UsageError(f"The recipe {path.stem} needs {needed} ({about}).")
    stages = {}
    for name, stage in recipe.stages.items():
        filled = {
            role: _replaced(value, named_files) for role, value in stage.all_references.items()
        }
        stages[name] = stage.model_copy(
            update={"source": filled.pop("source"), "references": filled}
        )
    return recipe.model_copy(update={"stages": stages})


def _replaced(value: Reference, files: Files) -> Reference:
    if isinstance(value, str):
        name = value.removeprefix("{").removesuffix("}")
        if value != f"{{{name}}}" or name not in files:
            return value
        file = files[name]
        return file if isinstance(file, str) else tuple(file)

    # an input of several files takes their place in a list
    result: list[str] = []
    for part in value:
        replacement = _replaced(part, files)
        result += [replacement] if isinstance(replacement, str) else replacement
    return tuple(result)


def _with_paths(stage: StageRecipe, names: Collection[str]) -> StageRecipe:
    """The stage with files and folders that have the name of a stage (`model`) spelled differently
    (`./model`).
    """
    references = {
        role: f"./{value}" if value in names and names_files(stage.command, role) else value
        for role, value in stage.references.items()
    }
    return stage.model_copy(update={"references": references})


def _check(recipe: Recipe) -> None:
    earlier: list[str] = []
    for name, stage in recipe.stages.items():
        if stage.command not in COMMANDS:
            raise UsageError(
                f"Stage {name!r}: there is no command {stage.command!r}; {did_you_mean(stage.command, COMMANDS)}"
            )
        if stage.preset and not config_of(stage.command).has_presets:
            raise UsageError(f"Stage {name!r}: {stage.command} has no presets.")
        check_references(stage.command, list(stage.references))
        _check_sources(name, stage, recipe, earlier)
        _check_kinds(name, stage, recipe)
        earlier.append(name)


def _check_kinds(name: str, stage: StageRecipe, recipe: Recipe) -> None:
    """Check the kinds of the stages and artifacts that a stage reads, and its settings."""
    config = recipe.config(name)
    command = COMMANDS[stage.command]
    source = command.source if config.source_kinds is None else config.source_kinds
    for role, value in stage.all_references.items():
        kinds = source if role == "source" else command.references[role].kinds
        if (
            isinstance(value, str)
            and kinds
            and (kind := _kind_of(value, recipe)) not in (None, *kinds)
        ):
            raise UsageError(
                f"Stage {name!r} reads {value!r}, which is of kind {kind}; {stage.command} reads {' or '.join(kinds)}."
            )


def _kind_of(reference: str, recipe: Recipe) -> str | None:
    """The kind of a stage's artifact, or of `kind/id`; None: it is a path."""
    if reference in recipe.stages:
        return str(stage_of(recipe.stages[reference].command).kind)
    kind, slash, _ = reference.partition("/")
    return kind if slash and kind in KINDS else None


def _check_sources(name: str, stage: StageRecipe, recipe: Recipe, earlier: Sequence[str]) -> None:
    """Require that stages come before their readers; a reference may also be an artifact or a file."""
    reads_files = COMMANDS[stage.command].reads_files
    if not stage.source and not reads_files:
        raise UsageError(f"Stage {name!r} has no `from`: what does {stage.command} read?")
    for role, value in stage.all_references.items():
        if not isinstance(value, str):
            if not reads_files:
                key = "from" if role == "source" else role
                raise UsageError(
                    f"Stage {name!r}: `{key}` names one artifact, not a list of {len(value)}."
                )
            continue
        is_stage = value in recipe.stages and not names_files(stage.command, role)
        if value not in earlier and (
            is_stage or (reads_artifact(stage.command, role) and "/" not in value)
        ):
            hint = did_you_mean(value, earlier) if earlier else "it is the first"
            raise UsageError(f"Stage {name!r} reads {value!r}, which is no stage above it; {hint}")


def require_named(recipe: Recipe, store: Store) -> None:
    """Check that all artifacts that a recipe names are there, before any stage runs. Raises:
    ArtifactError.
    """
    for stage in recipe.stages.values():
        for role, value in stage.all_references.items():
            if (
                reads_artifact(stage.command, role)
                and isinstance(value, str)
                and value not in recipe.stages
            ):
                store.locate(value)


def bound(references: Mapping[str, Reference], results: Mapping[str, Any]) -> dict[str, Any]:
    """References as a stage takes them: names of steps replaced by the `reference` of what they
    made.
    """
    values: dict[str, Any] = {}
    for role, value in references.items():
        if isinstance(value, str):
            values[role] = results[value].reference if value in results else value
        else:
            values[role] = list(value)
    return values
