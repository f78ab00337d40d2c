"""The lineage of artifacts, drawn as a tree."""

from collections.abc import Iterator, Mapping, Sequence

from stages.artifacts.artifact import Artifact, ancestors, descendants, reached


def lineage_tree(artifacts: Sequence[Artifact], names: Mapping[str, str]) -> str:
    """Each artifact under the last of those that it was made from; others, that do not lead there, beside it.

    Args:
        artifacts: what to draw; inputs that are not among them are left out.
        names: what to put in brackets behind a reference.
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
    """Prefix of each reference, from the top down; `below` has those under each, and under None the roots."""
    # A stack, no recursion: a lineage may be thousands deep.
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
    """The same artifacts, each after all that it was made from; what is its own ancestor stands anywhere."""
    known = {a.reference: a for a in artifacts}
    ordered: dict[str, Artifact] = {}
    seen: set[str] = set()
    for artifact in artifacts:
        waiting = [artifact.reference]
        while waiting:
            reference = waiting[-1]
            # Seen already: a circle, which only a crafted store has, ends here.
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
