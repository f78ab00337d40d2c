"""What a stage found out, as tables on stderr."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memlm_cli.console import figure, figure_name
from memlm_cli.tables import show_table

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact


def show_result(artifact: "Artifact") -> None:
    """The table of an artifact's kind."""
    title = f"{artifact.reference}"
    if artifact.kind == "tokens":
        _show_splits(title, artifact.metrics)
    else:
        rows = [(figure_name(name), _value(value)) for name, value in artifact.metrics.items() if _is_plain(value)]
        show_table(title, ("", ""), rows)


def _show_splits(title: str, metrics: Mapping[str, Any]) -> None:
    splits = metrics["splits"]
    names = list(dict.fromkeys(name for split in splits.values() for name in split))
    rows = [[split, *(_value(values.get(name)) for name in names)] for split, values in splits.items()]
    show_table(title, ["split", *map(figure_name, names)], rows)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else figure(value)
