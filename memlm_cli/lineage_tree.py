"""The lineage of artifacts, drawn as a tree."""

from collections.abc import Iterator, Mapping, Sequence

from stages.artifacts.artifact import Artifact, ancestors, descendants, reached


def lineage_tree(artifacts: Sequence[Artifact], names: Mapping[str, str]) -> str:
    """Draw each artifact under the latest of its inputs; inputs that do not lead there are named next to it.

    Args:
        artifacts: what to draw; inputs that are not among them are left out.
        names: texts in brackets after a reference.
    """
    parents = {artifact.reference: artifact.parents for artifact in artifacts}
    place: dict[str, int] = {}
    labels: dict[str, str] = {}
    below: dict[str | None, list[str]] = {}
    for artifact in parents_first(artifacts):
        direct = sorted(artifact.parents & place.keys(), key=place.__getitem__)
        place[artifact.reference] = len(place)
        last = direct[-1] if direct else None
        above = reached([last], parents) if last and len(direct) > 1 else set()
        others = [parent for parent in direct[:-1] if parent not in above]
        labels[artifact.reference] = _label(artifact.reference, names.get(artifact.reference, ""), others)
        below.setdefault(last, []).append(artifact.reference)
    return "\n".join(f"{branch}{labels[reference]}" for branch, reference in _branches(below))


def _branches(below: Mapping[str | None, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Each reference with its prefix, from the top down; `below`: the children of each, and the roots under None."""
    # A stack instead of recursion: a lineage may be thousands deep.
    waiting = [("", "", reference) for reference in reversed(below.get(None, ()))]
    while waiting:
        branch, trunk, reference = waiting.pop()
        yield branch, reference
        under = below.get(reference, ())
        for number, child in enumerate(reversed(under)):
            last = number == 0
            waiting.append((trunk + ("└── " if last else "├── "), trunk + ("    " if last else "│   "), child))


def relatives(reference: str, artifacts: Sequence[Artifact]) -> list[Artifact]:
    """The ancestors and descendants of an artifact, and itself."""
    related = ancestors([reference], artifacts) | descendants(reference, artifacts)
    return [a for a in parents_first(artifacts) if a.reference in related]


def parents_first(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """The artifacts in topological order, inputs first; an artifact in a cycle may come anywhere."""
    known = {a.reference: a for a in artifacts}
    ordered: dict[str, Artifact] = {}
    seen: set[str] = set()
    for artifact in artifacts:
        waiting = [artifact.reference]
        while waiting:
            reference = waiting[-1]
            # Seen already: a cycle, possible only in a crafted store, ends here.
            parents = [] if reference in seen else sorted(known[reference].parents, reverse=True)
            seen.add(reference)
            missing = [parent for parent in parents if parent in known and parent not in ordered]
            waiting += missing
            if not missing:
                ordered.setdefault(waiting.pop(), known[reference])
    return list(ordered.values())


def _label(reference: str, name: str, others: Sequence[str]) -> str:
    named = f" ({name})" if name else ""
    beside = f"  also reads {', '.join(others)}" if others else ""
    return f"{reference}{named}{beside}"
