"""The lineage of artifacts, drawn as a tree."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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
    above: dict[str, set[str]] = {}
    for artifact in parents_first(artifacts):
        parents = [reference for reference in drawn if reference in _parents(artifact)]
        last = parents[-1] if parents else None
        others = [p for p in parents[:-1] if last and p not in above[last]]
        label = _label(artifact, names.get(artifact.reference, ""), others)
        drawn[artifact.reference] = (drawn[last] if last else roots).add(label)
        above[artifact.reference] = set(parents).union(*(above[p] for p in parents))
    sink = io.StringIO()
    Console(file=sink, width=10_000, highlight=False, markup=False).print(roots)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())


def relatives(artifact: "Artifact", artifacts: Sequence["Artifact"]) -> list["Artifact"]:
    """The ancestors and descendants of an artifact, and itself."""
    ordered = parents_first(artifacts)
    up = {artifact.reference}
    for other in reversed(ordered):
        if other.reference in up:
            up |= _parents(other)
    down = {artifact.reference}
    for other in ordered:
        if _parents(other) & down:
            down.add(other.reference)
    return [a for a in ordered if a.reference in up | down]


def parents_first(artifacts: Sequence["Artifact"]) -> list["Artifact"]:
    """The same artifacts, each after all that it was made from."""
    known = {a.reference: a for a in artifacts}
    ordered: dict[str, Artifact] = {}

    def place(artifact: "Artifact") -> None:
        for parent in sorted(_parents(artifact) & known.keys() - ordered.keys()):
            place(known[parent])
        ordered.setdefault(artifact.reference, artifact)

    for artifact in artifacts:
        place(artifact)
    return list(ordered.values())


def _parents(artifact: "Artifact") -> set[str]:
    return {f"{i.kind}/{i.id}" for i in artifact.manifest.inputs.values()}


def _label(artifact: "Artifact", name: str, others: Sequence[str]) -> str:
    named = f" ({name})" if name else ""
    beside = f"  also reads {', '.join(others)}" if others else ""
    return f"{artifact.reference}{named}{beside}"
