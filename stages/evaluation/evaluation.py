"""An evaluation that is done: its rows, their sums and costs, from which a report follows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Job
from stages.diagnostics.probe import Probe
from stages.evaluation.book_rows import READ
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.costs import Spent, cost_of_model, cost_of_row
from stages.evaluation.figures import report
from stages.evaluation.plan import Plan
from stages.evaluation.row_weights import RowWeights
from stages.metrics import FORWARDS, Counts
from stages.models.config import model_of
from stages.open_book.settings import OPEN_BOOK
from stages.reports.fields import BESIDE_BOOK, GATED, PLAIN
from stages.retrieval.rows import MemoryRow


@dataclass(frozen=True)
class Evaluation:
    """Everything that the figures of a report follow from, when all shards are scored."""

    job: Job[EvaluateConfig]
    plan: Plan
    memory: Sequence[MemoryRow]
    weights: RowWeights
    records: Sequence[Mapping[str, Any]]
    probes: Mapping[str, Probe]
    shown: Mapping[str, Any]
    """Figures of probes, by name."""

    @property
    def config(self) -> EvaluateConfig:
        return self.job.config

    @property
    def read(self) -> Mapping[str, Artifact]:
        """The artifacts that were read, by role."""
        return self.job.inputs.artifacts

    @property
    def text(self) -> Mapping[str, Any]:
        """Metrics of the scored tokens."""
        return self.read["tokens"].metrics

    @property
    def split_tokens(self) -> int:
        return int(self.text["splits"][self.config.split]["tokens"])

    @cached_property
    def totals(self) -> report.Totals:
        return report.Totals.of(self.records)

    @cached_property
    def counts(self) -> Counts:
        return _counts(self.job, self.plan)

    @cached_property
    def names(self) -> list[str]:
        """Names of the rows: the model, with its gate, its learning or its book, and each memory."""
        first = GATED if model_of(self.read["model"]).reads_neighbors else PLAIN
        return [self.config.above or first, *(row.name for row in self.memory)]

    @property
    def beside(self) -> Sequence[str]:
        """Names of the rows behind those of memory, with which the model is compared."""
        return () if self.config.open_book is None else BESIDE_BOOK

    @property
    def all_names(self) -> list[str]:
        """Names of all rows whose scores were added up."""
        return [*self.names, *self.beside]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, with what they cost."""
        rows = report.table(
            self.all_names,
            [*self.weights.memories(), *([] for _ in self.beside)],
            self.totals,
            self.counts,
            self.split_tokens,
            self.text["vocabulary_size"],
        )
        spent = list(map(Spent, self._forward_tokens, self.totals.seconds))
        costs = [
            cost_of_row(self.job, row, of_row)
            for row, of_row in zip((None, *self.memory), spent, strict=False)
        ]
        costs += [cost_of_model(self.job, of_row) for of_row in spent[len(costs) :]]
        return [row | cost for row, cost in zip(rows, costs, strict=True)]

    @property
    def _forward_tokens(self) -> list[float]:
        """Tokens that the model reads for each scored one, of all rows."""
        inputs = sum(record["inputs"] for record in self.records)
        if self.config.open_book is not None:
            books = [record["open_book"] for record in self.records]
            by_row = {
                name: sum(book[f"inputs{end}"] for book in books) for name, end in READ.items()
            }
            of_rows = [by_row.get(name, by_row[OPEN_BOOK]) for name in self.all_names]
            return [count / self.split_tokens for count in of_rows]
        dynamic = self.config.dynamic
        learned = FORWARDS if dynamic is not None and dynamic.learns else 1.0
        return [learned * inputs / self.split_tokens] * len(self.all_names)


def _counts(job: Job[EvaluateConfig], plan: Plan) -> Counts:
    """Counts of the scored text: the split, or the last words of its passages."""
    words = plan.breakdown.last_words
    if words is None:
        return Counts.of(job.inputs["tokens"].metrics["splits"][job.config.split])
    return Counts(tokens=words.tokens, characters=0, bytes=0, words=words.passages)
