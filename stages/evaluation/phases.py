"""Phases of an evaluation: each is one job on a part of a split, or on the records of a pass."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import ShardJob
from stages.encoding.carried_state import StateStore
from stages.errors import ArtifactError
from stages.evaluation.book_rows import with_rows_beside_book
from stages.evaluation.conditions import ConditionCheck
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.figures.conditions import checked_count
from stages.evaluation.learning import Learning, choose_numbers, diverged_at
from stages.evaluation.passes import Part
from stages.evaluation.plan import Plan
from stages.evaluation.range_reader import RangeReader
from stages.evaluation.row_weights import RowWeights
from stages.evaluation.score_range import score_range, shard_record, token_scores
from stages.evaluation.translations import (
    best_candidates,
    open_row,
    translate_shard,
    try_candidate,
)
from stages.translation.translator import Translator


@dataclass(frozen=True)
class Resources:
    """Everything that the phases of one process share."""

    plan: Plan
    plain: RangeReader
    """Reader of the model as it was trained."""
    weights: RowWeights
    states: StateStore
    learning: Learning | None = None
    """Set if the model learns while it is scored."""
    translators: dict[int, Translator] = field(default_factory=dict)
    """Translators that this process has opened, by the number of the row; 0: the model alone."""

    @property
    def reader(self) -> RangeReader:
        """Reader of the model, at the chosen numbers if it learns."""
        return self.plain if self.learning is None else self.learning.reader


class Phase(ABC):
    """One job of an evaluation."""

    @abstractmethod
    def run(
        self,
        job: ShardJob[EvaluateConfig],
        resources: Resources,
        part: Part,
        output: ShardOutput,
    ) -> None:
        """Do the job on a part; files and the record go to `output`."""


class MeasureGradients(Phase):
    """Measures gradients of training text, for a model that learns while it is scored."""

    def run(
        self,
        job: ShardJob[EvaluateConfig],
        resources: Resources,
        part: Part,
        output: ShardOutput,
    ) -> None:
        assert resources.learning is not None
        resources.learning.measure(output)


class TryLearning(Phase):
    """Scores the beginning of the tuning split with one rate and decay."""

    def run(
        self,
        job: ShardJob[EvaluateConfig],
        resources: Resources,
        part: Part,
        output: ShardOutput,
    ) -> None:
        split = job.config.tune_split
        assert resources.learning is not None and split is not None
        output.record |= resources.learning.try_candidate(part.candidate, split, part.stop)


class SettleLearning(Phase):
    """Records the rate and the decay with the smallest loss."""

    def run(
        self,
        job: ShardJob[EvaluateConfig],
        resources: Resources,
        part: Part,
        output: ShardOutput,
    ) -> None:
        assert resources.learning is not None
        output.record |= choose_numbers(resources.learning.settings, job.record)


class Sample(Phase):
    """Reads short ranges of the tuning split, for the unit of default candidates."""

    def run(
        self,
        job: ShardJob[EvaluateConfig],
        resources: Resources,
        part: Part,
        output: ShardOutput,
    ) -> None:
        output.record |= resources.weights.sample(resources.reader)


class Observe(Phase):
    """Reads a range of the tuning split, and stores what each policy observes."""

    def run(
        self,
        job: ShardJob[EvaluateConfig],
        resources: Resources,
        part: Part,
        output: ShardOutput,
    ) -> None:
        over = resources.plan.pass_of(part)
        result = over.read_range(part, resources.reader, resources.states, output)
        resources.weights.observe(part, result.scored_range, output)


class TryCandidate(Phase):
    """Translates sentences of the tuning split with one candidate, for its BLEU."""

    def run(
        self,
        job: ShardJob[EvaluateConfig],
        resources: Resources,
        part: Part,
        output: ShardOutput,
    ) -> None:
        output.record |= try_candidate(job, resources.reader, resources.weights, part)


class Choose(Phase):
    """Records the choice of each policy from all observations of a pass."""

    def run(
        self,
        job: ShardJob[EvaluateConfig],
        resources: Resources,
        part: Part,
        output: ShardOutput,
    ) -> None:
        over = resources.plan.pass_of(part)
        settled = best_candidates(job, resources.plan)
        output.record |= resources.weights.choose(over, settled)


class Score(Phase):
    """Scores a range of the split with the model alone and with every row, at the chosen settings."""

    def run(
        self,
        job: ShardJob[EvaluateConfig],
        resources: Resources,
        part: Part,
        output: ShardOutput,
    ) -> None:
        plan = resources.plan
        policies = resources.weights.policies()
        where = policies[0].searches_where if policies else None
        result = plan.scoring.read_range(part, resources.reader, resources.states, output, where)
        scored = score_range(resources.reader, result, policies)
        scored = with_rows_beside_book(scored, resources.reader, result)

        number = plan.scoring.number(part)
        if plan.scores is not None:
            plan.scores.write(output, number, token_scores(scored))
        plan.unit_files.write(output, number, scored.nll(), part.start, part.stop)
        output.record |= shard_record(scored, part.start, part.stop, plan.breakdown)
        if resources.learning is not None:
            output.record["diverged_at"] = diverged_at(result.after)
        # A model that diverged would make every figure infinite: report it once, here.
        if output.record["nll"][0] is None:
            raise ArtifactError(
                f"{job.inputs['model'].reference} gives probabilities that are not numbers, or zero, "
                f"in tokens {part.start} to {part.stop} of {job.config.split}: train it again."
            )
        rereads = resources.reader.split_reader.rereads
        parts = plan.scoring.parts
        tokens = parts[-1].stop - parts[0].start
        count = checked_count(number, len(parts), tokens, rereads=rereads)
        if count:
            check = ConditionCheck(
                resources.reader, policies, plan.scoring.split, where, plan.scoring.contexts
            )
            output.record["conditions"] = check.record(result, scored, count)


class Translate(Phase):
    """Translates sentences of the split, with the model alone or with a row of memory."""

    def run(
        self,
        job: ShardJob[EvaluateConfig],
        resources: Resources,
        part: Part,
        output: ShardOutput,
    ) -> None:
        if part.row not in resources.translators:
            policy = resources.weights.policies()[part.row - 1] if part.row else None
            resources.translators[part.row] = open_row(
                job, resources.reader, policy, job.config.split
            )
        translate_shard(job, resources.translators[part.row], part, output)


PHASES: Mapping[str, Phase] = {
    "gradients": MeasureGradients(),
    "learn": TryLearning(),
    "settle": SettleLearning(),
    "sample": Sample(),
    "observe": Observe(),
    "try": TryCandidate(),
    "choose": Choose(),
    "score": Score(),
    "translate": Translate(),
}
"""Phases by the task of a part."""
