"""Compares a recipe with a store: which stages are done, which would run, and why. Reads, and writes nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.catalogue import reads_artifact, stage_of
from pipelines.recipe import Recipe, Reference
from pipelines.settings import leaves
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import ResolvedWork, plan
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.text.tokens import SPLITS

TEXTS = {*SPLITS, "source"}
"""Roles of files of text; `source` is cut into splits."""


@dataclass(frozen=True)
class Step:
    """One stage of a recipe, as it stands."""

    name: str
    command: str
    config: StageConfig
    references: Mapping[str, Reference]
    """References that it reads: names of steps before it, or artifacts and files."""
    reference: str | None
    """Its artifact; None as long as it depends on something that is not made."""
    done: bool
    why: str


def plan_recipe(recipe: Recipe, store: Store, execution: Execution) -> list[Step]:
    """The steps of a recipe in order, compared with what is in the store.

    Raises: ArtifactError or DataError for artifacts and files that the recipe names and that are not there.
    """
    require_named(recipe, store)
    steps: dict[str, Step] = {}
    for name, stage in recipe.stages.items():
        config, references = recipe.config(name), stage.all_references
        waits = [s for s in _steps_read(references, steps) if not s.done]
        if waits:
            reference, done, why = None, False, f"reads {', '.join(s.name for s in waits)}"
        else:
            work = plan(stage_of(stage.command), config, bound(references, steps), store, execution)
            reference, done, why = work.reference, *_state(work, store)
        steps[name] = Step(name, stage.command, config, references, reference, done, why)
    return list(steps.values())


def require_named(recipe: Recipe, store: Store) -> None:
    """Raises: ArtifactError for an artifact that the recipe names and that is not there, before any stage runs."""
    for stage in recipe.stages.values():
        for role, value in stage.all_references.items():
            if reads_artifact(stage.command, role) and isinstance(value, str) and value not in recipe.stages:
                store.locate(value)


def bound(references: Mapping[str, Reference], made: Mapping[str, Any]) -> dict[str, Any]:
    """References as a stage takes them: names of steps replaced by the `reference` of what they made."""
    found: dict[str, Any] = {}
    for role, value in references.items():
        if isinstance(value, str):
            found[role] = made[value].reference if value in made else value
        else:
            found[role] = list(value)
    return found


def _steps_read(references: Mapping[str, Reference], steps: Mapping[str, Step]) -> Iterator[Step]:
    for value in references.values():
        if isinstance(value, str) and value in steps:
            yield steps[value]


def _state(work: ResolvedWork[Any], store: Store) -> tuple[bool, str]:
    """(done, why) of a piece of work whose inputs are all there."""
    if store.has(work.kind, work.id):
        return True, "done"
    if store.draft_folder(work.kind, work.id).is_dir():
        return False, "interrupted: continues"
    alike = list(reversed(store.artifacts(work.kind)))
    alike.sort(key=lambda artifact: bool(_other_files(artifact, work)))
    return False, next(filter(None, (_difference(a, work) for a in alike)), "not made yet")


def _other_files(artifact: Artifact, work: ResolvedWork[Any]) -> set[str]:
    """The roles (`train`, `source`, `tokenizer`) in which other files were read."""
    different = {tuple(file) for file in artifact.manifest.outside_files} ^ {tuple(file) for file in work.files}
    return {file[0].partition(".")[0] for file in different}


def _difference(artifact: Artifact, work: ResolvedWork[Any]) -> str | None:
    """Describe the one difference between a piece of work and one that was done; None if there are several."""
    other = _other_files(artifact, work)
    if other & TEXTS:
        return "not made of this text yet"
    if other:
        return f"another {'/'.join(sorted(other))} than that of {artifact.reference}"
    inputs = [
        f"{role} changed: {artifact.manifest.inputs[role].id} -> {record.id}"
        for role, record in work.records.items()
        if role in artifact.manifest.inputs and artifact.manifest.inputs[role].id != record.id
    ]
    own = dict(leaves(artifact.config))
    settings = [
        f"{name}: {own.get(name)} -> {value}" for name, value in leaves(work.config.stored()) if own.get(name) != value
    ]
    if inputs and not settings:
        return ", ".join(inputs)
    if settings and not inputs:
        return "settings changed: " + ", ".join(settings[:3]) + (", …" if len(settings) > 3 else "")
    return None
