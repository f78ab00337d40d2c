"""Display of an artifact on a terminal, by default a table of its metrics.

A kind with more to say derives `View`, and names it in its row of `STAGES`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from memlm_cli.tables import cell_text
from stages.artifacts.artifact import Artifact
from stages.numbers import figure_name, size

Figures = Mapping[str, Any]

FIGURES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "bytes": ("on disk", size),
    "key": (
        "key",
        lambda key: {"ffn-input": "ffn-input, what enters the last feed-forward layer"}.get(
            key, key
        ),
    ),
    "lossless": ("keys", lambda whole: "stored whole" if whole else "stored as codes"),
}
"""Figures of artifacts that are not shown under their own names."""


class ResultTable(NamedTuple):
    """A table of a result."""

    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[str]]
    whole: bool = True
    """Whether columns without room are shown below the others."""


class View:
    """How a terminal shows artifacts of a kind."""

    told_in_words: frozenset[str] = frozenset()
    """Metrics that a sentence tells, and no table."""

    def parts(
        self, artifact: Artifact, title: str, *, verbose: bool
    ) -> Iterator[ResultTable | str]:
        """Tables and sentences, in order, when the artifact was made or found.

        Args:
            title: the beginning of the title of its first table.
            verbose: whether everything is shown.
        """
        on_disk = {"bytes": artifact.manifest.bytes} if "bytes" in artifact.metrics else {}
        rows = list(self.figures({**artifact.metrics, **on_disk}))
        yield ResultTable(title, ("", ""), rows)

    def lines(self, artifact: Artifact) -> Iterator[tuple[str, str]]:
        """Names and values for `memlm artifacts show`."""
        yield from self.figures(artifact.metrics)

    def rest(self, artifact: Artifact, *, verbose: bool) -> str:
        """A sentence on where the rest is found; empty: there is none."""
        return ""

    def figures(self, metrics: Figures) -> Iterator[tuple[str, str]]:
        """Names and values for people; figures by number (`recall`) become `recall@1`, `recall@4`,
        …
        """
        for name, value in metrics.items():
            if name in self.told_in_words:
                continue
            if isinstance(value, Mapping):
                if all(k.isdigit() for k in value):
                    for k in sorted(value, key=int):
                        if isinstance(value[k], int | float):
                            yield f"{figure_name(name)}@{k}", cell_text(value[k])
            elif name in FIGURES:
                shown, spelled = FIGURES[name]
                yield shown, spelled(value)
            elif isinstance(value, str | int | float):
                yield figure_name(name), cell_text(value)
