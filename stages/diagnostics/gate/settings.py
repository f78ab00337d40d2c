"""Settings of the gate's probe: what the gate reads, and what is reported. Free of torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from stages.artifacts.artifact import Artifact
from stages.diagnostics.passage import resolve_passage
from stages.diagnostics.settings import Options, ProbeSettings
from stages.errors import UsageError
from stages.lineage.neighbors import require_neighbors

if TYPE_CHECKING:
    from stages.charts.data import Chart


class GateProbeSettings(ProbeSettings):
    """`gate_k`: numbers of neighbours, the first of which is read; `passage`: START:STOP, tokens that are shown."""

    options: ClassVar[tuple[str, ...]] = ("gate_k", "passage")

    def of_report(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """How many neighbours entered; the passage was that of the evaluation."""
        numbers = config.get("gate_k")
        return {"gate_k": None if numbers is None else (numbers[0],), "passage": None}

    def resolve(self, asked: Options, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> dict[str, Any]:
        """Filled in: as many neighbours as in training, the first tokens of the split; see `resolve_options`.

        Raises: UsageError for options of a gate that the model does not have, or a passage outside the split;
            ArtifactError if the stored neighbours are too few, or hold the answers.
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

    def summary(self, metrics: Mapping[str, Any]) -> str:
        from stages.diagnostics.gate.report import summary

        return summary(metrics)

    def charts(self, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "list[Chart]":
        from stages.diagnostics.gate.charts import gate_charts

        return gate_charts(metrics, files)
