"""What a stage found out, as tables on stderr."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from memlm_cli.console import figure, figure_name
from memlm_cli.tables import show_table

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact


def show_result(artifact: "Artifact") -> None:
    """The table of an artifact's kind."""
    if artifact.kind == "tokens":
        _show_splits(artifact.reference, artifact.metrics)
    else:
        show_table(artifact.reference, ("", ""), list(_plain(artifact.metrics)))


def _plain(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values for people; a table of figures by number (`recall`) becomes `recall@1`, `recall@4`, …"""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _plain(value, f"{prefix}{figure_name(name)} ")
        elif isinstance(value, str | int | float):
            label = f"{prefix.strip()}@{name}" if name.isdigit() else f"{prefix}{figure_name(name)}"
            yield label, _value(value)


def _show_splits(title: str, metrics: Mapping[str, Any]) -> None:
    splits = metrics["splits"]
    names = list(dict.fromkeys(name for split in splits.values() for name in split))
    rows = [[split, *(_value(values.get(name)) for name in names)] for split, values in splits.items()]
    show_table(title, ["split", *map(figure_name, names)], rows)


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else figure(value)
