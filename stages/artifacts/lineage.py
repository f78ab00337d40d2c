"""What artifacts were made from, and what was made from them, by reference."""

from collections.abc import Callable, Collection, Iterable

from stages.artifacts.artifact import Artifact


def ancestors(references: Iterable[str], artifacts: Iterable[Artifact]) -> set[str]:
    """Some references, and all that they were made from, as far as these artifacts tell."""
    known = {artifact.reference: artifact for artifact in artifacts}
    return _closure(references, lambda one: known[one].parents if one in known else set())


def needed_for(references: Iterable[str], artifacts: Iterable[Artifact]) -> set[str]:
    """Some references, and all that they cannot be read without, as far as these artifacts tell."""
    known = {artifact.reference: artifact for artifact in artifacts}
    return _closure(
        references, lambda one: {r.reference for r in known[one].needed.values()} if one in known else set()
    )


def _closure(references: Iterable[str], next_of: Callable[[str], set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = set(references)
    while waiting:
        reference = waiting.pop()
        found.add(reference)
        waiting |= next_of(reference) - found
    return found


def descendants(reference: str, artifacts: Collection[Artifact]) -> set[str]:
    """A reference, and all of these artifacts that were made from it, directly or not."""
    found = {reference}
    while new := {artifact.reference for artifact in artifacts if artifact.parents & found} - found:
        found |= new
    return found
