"""Compares work with a store: what it reads, and why it is not done. Reads, and writes nothing."""

from collections.abc import Mapping
from typing import Any

from pipelines.catalogue import reads_artifact
from pipelines.recipe import Recipe, Reference
from pipelines.settings import leaves
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import ResolvedWork
from stages.artifacts.store import Store
from stages.text.tokens import SPLITS

TEXTS = {*SPLITS, "source"}
"""Roles of files of text; `source` is cut into splits."""


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


def why_new(work: ResolvedWork[Any], store: Store) -> str:
    """Why a piece of work, whose inputs are all there, is not done."""
    if store.draft_folder(work.kind, work.id).is_dir():
        return "interrupted: continues"
    alike = list(reversed(store.artifacts(work.kind)))
    # The latest of the same text first: how that differs says most.
    alike.sort(key=lambda artifact: bool(_other_files(artifact, work)))
    return next(filter(None, (_difference(a, work) for a in alike)), "not made yet")


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
