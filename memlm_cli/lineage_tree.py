"""The lineage of artifacts, drawn as a tree."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stages.artifacts.lineage import ancestors, descendants

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact


def lineage_tree(artifacts: Sequence["Artifact"], names: Mapping[str, str]) -> str:
    """Each artifact under the last of those that it was made from; others, that do not lead there, beside it.

    Args:
        artifacts: what to draw; inputs that are not among them are left out.
        names: what to put in brackets behind a reference.
    """
    from rich.console import Console
    from rich.tree import Tree

    roots = Tree("", hide_root=True)
    drawn: dict[str, Tree] = {}
    place: dict[str, int] = {}
    above: dict[str, set[str]] = {}
    for artifact in parents_first(artifacts):
        direct = sorted(artifact.parents & drawn.keys(), key=place.__getitem__)
        place[artifact.reference] = len(place)
        last = direct[-1] if direct else None
        others = [p for p in direct[:-1] if last and p not in above[last]]
        label = _label(artifact, names.get(artifact.reference, ""), others)
        drawn[artifact.reference] = (drawn[last] if last else roots).add(label)
        above[artifact.reference] = set(direct).union(*(above[p] for p in direct))
    sink = io.StringIO()
    Console(file=sink, width=10_000, highlight=False, markup=False).print(roots)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())


def relatives(artifact: "Artifact", artifacts: Sequence["Artifact"]) -> list["Artifact"]:
    """The ancestors and descendants of an artifact, and itself."""
    related = ancestors([artifact.reference], artifacts) | descendants(artifact.reference, artifacts)
    return [a for a in parents_first(artifacts) if a.reference in related]


def parents_first(artifacts: Sequence["Artifact"]) -> list["Artifact"]:
    """The same artifacts, each after all that it was made from."""
    known = {a.reference: a for a in artifacts}
    ordered: dict[str, Artifact] = {}

    def place(artifact: "Artifact") -> None:
        for parent in sorted(artifact.parents & known.keys() - ordered.keys()):
            place(known[parent])
        ordered.setdefault(artifact.reference, artifact)

    for artifact in artifacts:
        place(artifact)
    return list(ordered.values())


def _label(artifact: "Artifact", name: str, others: Sequence[str]) -> str:
    named = f" ({name})" if name else ""
    beside = f"  also reads {', '.join(others)}" if others else ""
    return f"{artifact.reference}{named}{beside}"
