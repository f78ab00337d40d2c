"""Options of all probes in an evaluation: settled before any work, kept with its settings. Free of torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.artifacts.artifact import Artifact
from stages.diagnostics import PROBES
from stages.diagnostics.probe import Options, Probe

if TYPE_CHECKING:
    from stages.charts.data import Chart


def all_probes() -> dict[str, type[Probe]]:
    """Each probe, by its name."""
    return {name: PROBES.load(name) for name in PROBES.names()}


def option_names() -> list[str]:
    """Settings of an evaluation that are options of probes."""
    return [option for part in all_probes().values() for option in part.options]


def resolve_options(asked: Options, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> dict[str, Any]:
    """Options filled in for the model that is evaluated.

    Args:
        read: what the evaluation reads, by role.
        splits: the one that is scored, then the one that is tuned on, if any; none: a text that is no split.
    Raises: UsageError or ArtifactError where they do not go with the model, or what it reads.
    """
    resolved: dict[str, Any] = {}
    for part in all_probes().values():
        resolved |= part.resolve({option: asked[option] for option in part.options}, read, splits)
    return resolved


def reported_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options that a question about a model takes over from an evaluation with these settings; {}: none."""
    taken: dict[str, Any] = {}
    for part in all_probes().values():
        taken |= part.of_report(config)
    return taken


def probe_summaries(metrics: Mapping[str, Any]) -> list[str]:
    """A line for each probe that stands in `metrics.json`."""
    return [part.summary(metrics[name]) for name, part in all_probes().items() if metrics.get(name)]


def probe_charts(metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "dict[str, list[Chart]]":
    """The charts of each probe, by its name; see `Probe.charts`."""
    return {name: part.charts(metrics, files) for name, part in all_probes().items()}
