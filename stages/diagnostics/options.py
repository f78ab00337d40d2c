"""Options of an evaluation that are meant for probes: settled before any work, kept with its settings. Free of torch.

Only a gate asks for any; each is a field of `stages.evaluation.config.EvaluateConfig`, too. No probe is loaded to
settle them: a report that is made already should be found at once.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.artifacts.artifact import Artifact
from stages.diagnostics import PROBES
from stages.diagnostics.passage import resolve_passage
from stages.errors import UsageError
from stages.lineage.neighbors import require_neighbors

if TYPE_CHECKING:
    from stages.charts.data import Chart
    from stages.diagnostics.probe import Options

OPTIONS = ("gate_k", "passage")
"""How many neighbours a gate reads, and further numbers to compare; tokens that are shown one by one."""


def resolve_options(asked: "Options", read: Mapping[str, Artifact], splits: tuple[str, ...]) -> dict[str, Any]:
    """Options filled in for the model that is evaluated: as many neighbours as in training, the split's first tokens.

    Args:
        read: what the evaluation reads, by role.
        splits: the one that is scored, then the one that is tuned on, if any; none: a text that is no split.
    Raises: UsageError for options of a gate that the model does not have, or a passage outside the split; ArtifactError
        if the stored neighbours are too few, or hold the answers.
    """
    model = read["model"]
    if "gate_neighbors" not in read:
        for name, value in asked.items():
            if value is not None:
                raise UsageError(f"{model.reference} has no gate: leave --{name.replace('_', '-')} out.")
        return dict(asked)
    trained = (model.config["memory"] or {}).get("k")
    if trained is None:
        raise model.damaged("manifest.json has a gate, and no config.memory.k")
    first, *others = asked["gate_k"] or (trained,)
    numbers = (first, *sorted({*others} - {first}))
    for split in splits:
        require_neighbors(read["gate_neighbors"], split, max(numbers), "evaluate --gate-k ")
    passage = resolve_passage(asked["passage"], splits[0], read["tokens"]) if splits else None
    return {"gate_k": numbers, "passage": passage}


def reported_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options that a question about a model takes over from an evaluation with these settings; {}: from none.

    As many neighbours as entered there; the passage was that of the evaluation.
    """
    numbers = config.get("gate_k")
    return {"gate_k": None if numbers is None else (numbers[0],), "passage": None}


def probe_summaries(metrics: Mapping[str, Any]) -> list[str]:
    """A line for each probe that stands in `metrics.json`."""
    return [PROBES.load(name).summary(metrics[name]) for name in PROBES.names() if metrics.get(name)]


def probe_charts(metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "dict[str, list[Chart]]":
    """The charts of each probe, by its name; see `Probe.charts`."""
    return {name: PROBES.load(name).charts(metrics, files) for name in PROBES.names()}
