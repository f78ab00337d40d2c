"""What artifacts were made from, and what was made from them, by reference."""

from collections.abc import Collection, Iterable

from stages.artifacts.artifact import Artifact


def ancestors(references: Iterable[str], artifacts: Iterable[Artifact]) -> set[str]:
    """Some references, and all that they were made from, as far as these artifacts tell."""
    known = {artifact.reference: artifact for artifact in artifacts}
    found: set[str] = set()
    waiting = set(references)
    while waiting:
        reference = waiting.pop()
        found.add(reference)
        if reference in known:
            waiting |= known[reference].parents - found
    return found


def descendants(reference: str, artifacts: Collection[Artifact]) -> set[str]:
    """A reference, and all of these artifacts that were made from it, directly or not."""
    found = {reference}
    while new := {artifact.reference for artifact in artifacts if artifact.parents & found} - found:
        found |= new
    return found
