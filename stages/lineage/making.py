"""Parts that artifacts were made of, and the time that this took. Free of torch."""

from collections.abc import Collection, Iterable, Iterator

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError

MEMORY = ("datastore", "index", "neighbors")
"""Kinds of artifacts that are made for a memory alone."""
BESIDE_TEXT = (*MEMORY, "model", "batches", "episodes")
"""Kinds of all that is made from tokens, except reports."""


def parts(artifact: Artifact, kinds: Collection[str]) -> Iterator[Artifact]:
    """Artifacts of some kinds that an artifact was made of, through others of these kinds."""
    for role in artifact.manifest.inputs:
        part = artifact.input(role)
        if part.kind in kinds:
            yield part
            yield from parts(part, kinds)


def making_seconds(artifacts: Iterable[Artifact]) -> float | None:
    """Seconds that artifacts took, with all that they were made of from tokens on.

    Tokens and reports take none. None: something of it is gone.
    """
    made = {}
    try:
        for artifact in artifacts:
            for part in (artifact, *parts(artifact, BESIDE_TEXT)):
                if part.kind in BESIDE_TEXT:
                    made[part.reference] = part.manifest.seconds
    except ArtifactError:
        return None
    return sum(made.values())
