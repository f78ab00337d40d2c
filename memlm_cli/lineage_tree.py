"""The lineage of artifacts, drawn as a tree."""

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from stages.artifacts.artifact import Artifact, ancestors, descendants, reached


def lineage_tree(artifacts: Sequence[Artifact], names: Mapping[str, str]) -> str:
    """Draw each artifact under the latest of its inputs; inputs that do not lead there are named
    next to it.

    Args:
        artifacts: what to draw; inputs that are not among them are left out.
        names: texts in brackets after a reference.
    """
    parents = {artifact.reference: artifact.parents for artifact in artifacts}
    place: dict[str, int] = {}
    labels: dict[str, str] = {}
    below: dict[str | None, list[str]] = {}
    for artifact in parents_first(artifacts):
        reference = artifact.reference
        inputs = sorted(artifact.parents & place.keys(), key=place.__getitem__)
        place[reference] = len(place)
        last = inputs[-1] if inputs else None
        below.setdefault(last, []).append(reference)

        # inputs of the latest input are above it already
        above = reached([last], parents) if last and len(inputs) > 1 else set()
        others = [parent for parent in inputs[:-1] if parent not in above]
        label = reference
        if reference in names:
            label += f" ({names[reference]})"
        if others:
            label += f"  also reads {', '.join(others)}"
        labels[reference] = label
    return "\n".join(f"{branch}{labels[reference]}" for branch, reference in _branches(below))


def _branches(below: Mapping[str | None, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Each reference with its prefix, from the top down; `below`: the children of each, and the
    roots under None.
    """
    # A stack instead of recursion: a lineage may be thousands deep.
    waiting = [("", "", reference) for reference in reversed(below.get(None, ()))]
    while waiting:
        branch, trunk, reference = waiting.pop()
        yield branch, reference
        under = below.get(reference, ())
        for number, child in enumerate(reversed(under)):
            last = number == 0
            waiting.append(
                (trunk + ("└── " if last else "├── "), trunk + ("    " if last else "│   "), child)
            )


def relatives(reference: str, artifacts: Sequence[Artifact]) -> list[Artifact]:
    """The ancestors and descendants of an artifact, and itself."""
    related = ancestors([reference], artifacts) | descendants(reference, artifacts)
    return [a for a in parents_first(artifacts) if a.reference in related]


def parents_first(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """The artifacts in topological order, inputs first; as they are if one is its own ancestor, in
    a crafted store.
    """
    by_reference = {artifact.reference: artifact for artifact in artifacts}
    parents = {
        reference: sorted(artifact.parents & by_reference.keys())
        for reference, artifact in by_reference.items()
    }
    try:
        return [by_reference[reference] for reference in TopologicalSorter(parents).static_order()]
    except CycleError:
        return list(by_reference.values())
