"""The gate of a model as a probe: how far it opens, what its neighbours are worth, a passage token by token."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.diagnostics.gate.report import gate_curve, gate_figures, passage_of
from stages.diagnostics.gate.watch import GateWatch
from stages.diagnostics.passage import tokens_of
from stages.encoding.hidden_memory import HiddenReader
from stages.encoding.probe import Probe, Records
from stages.models.language_model import LanguageModel
from stages.retrieval.gate_reader import GateReader


@dataclass(frozen=True)
class GateProbe(Probe):
    """`numbers`: of neighbours of which perplexity is reported; `passage`: tokens of `split` that are shown."""

    columns: ClassVar[tuple[str, ...]] = ("gate",)

    numbers: tuple[int, ...]
    passage: range
    tokens: Artifact
    split: str

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        if "gate_neighbors" not in read:
            return None
        read_numbers = options["gate_k"]
        numbers = read_numbers if 0 in read_numbers else (*read_numbers, 0)  # the same weights with the gate shut
        return cls(numbers, tokens_of(options["passage"]), read["tokens"], split)

    def watch(self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None) -> GateWatch:
        assert isinstance(reader, GateReader), "a model with a gate reads through it"
        return GateWatch(reader, start, counted, self.numbers, self.passage)

    def metrics(self, records: Records) -> dict[str, Any]:
        return gate_figures(records, self.numbers)

    def curves(self, metrics: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
        return gate_curve(metrics, row)

    def files(self, records: Records) -> dict[str, Any]:
        return {"passage.json": passage_of(records, self.tokens, self.split, self.passage)}
