"""Ancestors and descendants of artifacts, by reference."""

from collections.abc import Iterable, Mapping
from typing import Protocol


class Made(Protocol):
    """An artifact, as far as its lineage counts."""

    @property
    def reference(self) -> str: ...

    @property
    def parents(self) -> set[str]:
        """References of what it was made from directly."""

    @property
    def needed(self) -> set[str]:
        """Parents that it cannot be read without."""


def ancestors(references: Iterable[str], artifacts: Iterable[Made]) -> set[str]:
    """Some references, and all that they were made from, as far as these artifacts tell."""
    return reached(references, {artifact.reference: artifact.parents for artifact in artifacts})


def needed_for(references: Iterable[str], artifacts: Iterable[Made]) -> set[str]:
    """Some references, and all that they cannot be read without, as far as these artifacts tell."""
    return reached(references, {artifact.reference: artifact.needed for artifact in artifacts})


def descendants(reference: str, artifacts: Iterable[Made]) -> set[str]:
    """A reference, and all of these artifacts that were made from it, directly or not."""
    children: dict[str, set[str]] = {}
    for artifact in artifacts:
        for parent in artifact.parents:
            children.setdefault(parent, set()).add(artifact.reference)
    return reached([reference], children)


def reached(references: Iterable[str], ways: Mapping[str, set[str]]) -> set[str]:
    """Some references, and all that `ways` lead to from them."""
    found: set[str] = set()
    waiting = set(references)
    while waiting:
        reference = waiting.pop()
        found.add(reference)
        waiting |= ways.get(reference, set()) - found
    return found
