"""Preparation of a model that learns while it is scored: gradients of training text, and the choice
of its numbers on the tuning split.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

from stages.adaptation import UPDATE_RULES
from stages.adaptation.course import Course
from stages.adaptation.gradient_statistics import measure_gradients
from stages.adaptation.learner import DivergedError, Learner
from stages.adaptation.settings import Dynamic, Numbers
from stages.artifacts.output import ShardOutput
from stages.encoding.carried_state import CarriedState
from stages.errors import UsageError
from stages.evaluation.range_reader import RangeReader
from stages.metrics import finite, perplexity
from stages.retrieval.sources.source import Needs

TRIED_TOKENS = 30_000
"""Tokens at the beginning of the tuning split on which numbers are tried, as in the authors' code."""
STATISTICS = "gradient-statistics.safetensors"
"""File of a report with the root mean square of each weight's gradient in training text."""
MEASURE = "gradients"
LEARN = "learn"
SETTLE = "learn-choice"
"""Names of the three phases."""


@dataclass(frozen=True)
class Learning:
    """A model that learns while it is scored, with the choices in the records of a draft."""

    settings: Dynamic
    """Complete."""
    plain: RangeReader
    """Reads with the weights of training, which `learner` changes in place."""
    folder: Path
    """Folder of the draft."""
    record: Callable[[str], Mapping[str, Any]]
    """Returns the record of a shard, by its key."""

    def measure(self, output: ShardOutput) -> None:
        """Write the gradient statistics of the training split.

        Raises: UsageError if it is shorter than a segment.
        """
        reader = self.plain.split_reader
        segment = self.settings.segment
        assert segment is not None, "complete settings have a segment"
        try:
            statistics = measure_gradients(self.plain.model, reader, segment)
        except ValueError as error:
            raise UsageError(f"--memory {self.settings.spelled}: {error}.") from None
        on_disk = {name: rms.cpu().contiguous() for name, rms in statistics.rms.items()}
        output.add(STATISTICS).write_bytes(save(on_disk))
        output.record |= {"tokens": statistics.tokens, "batches": statistics.batches}

    def try_candidate(self, number: int, split: str, stop: int) -> dict[str, Any]:
        """The record of a candidate: nats of the first tokens of the tuning split, None if it
        diverges.
        """
        reader = self.at(self.settings.candidates[number])
        # Memory on top is tuned later, with the numbers that are chosen here.
        alone = replace(
            reader, needs=Needs(), external=None, memories={}, probes={}, side_models={}
        )
        try:
            scored = alone.read(split, 0, stop, CarriedState()).scored_range.lm
        except DivergedError:
            return {"nll": None, "tokens": stop}
        return {"nll": finite(-float(scored.log_p.sum(dtype=torch.float64))), "tokens": stop}

    @property
    def reader(self) -> RangeReader:
        """The reader with the chosen numbers, and slower ones for where these diverge."""
        numbers = chosen_numbers(self.settings, self.record)
        return self.at(numbers, self.settings.slower(numbers))

    def at(self, numbers: Numbers, slower: Sequence[Numbers] = ()) -> RangeReader:
        """The reader with other numbers; with a rate of 0 it is that of the plain model."""
        if numbers.rate == 0:
            # A reader that learned before has left its weights in the model.
            if "learner" in vars(self):
                self.learner.rule.begin(numbers)
            return self.plain
        return replace(self.plain, learner=self.learner.at(numbers, slower))

    @cached_property
    def learner(self) -> Learner:
        """The learner, at the first of the candidates; made when it is first asked for."""
        rule = UPDATE_RULES.load(self.settings.what)
        statistics = load_file(self.folder / STATISTICS) if rule.needs_statistics else None
        opened = rule(self.plain.model, self.settings, statistics)
        return Learner(opened, self.settings, self.settings.candidates[0])


def measures_gradients(settings: Dynamic) -> bool:
    """Whether gradients of training text are measured before the split is read."""
    needed: bool = UPDATE_RULES.load(settings.what).needs_statistics
    return needed and settings.learns


def candidate_key(number: int) -> str:
    """Key of the shard that tries a candidate."""
    return f"{LEARN}-{number:02d}"


def chosen_numbers(settings: Dynamic, record: Callable[[str], Mapping[str, Any]]) -> Numbers:
    """The numbers that are read: the only candidate, or the choice on the tuning split."""
    candidates = settings.candidates
    return candidates[0] if len(candidates) == 1 else Numbers(**record(SETTLE))


def choose_numbers(
    settings: Dynamic, record: Callable[[str], Mapping[str, Any]]
) -> dict[str, float]:
    """The candidate with the smallest loss on the tuning split; of equal ones the first.

    Raises: UsageError if all of them diverge.
    """
    losses = [record(candidate_key(n))["nll"] for n in range(len(settings.candidates))]
    finite_losses = [loss for loss in losses if loss is not None]
    if not finite_losses:
        raise UsageError(
            f"--memory {settings.spelled}: learning diverges with every rate that was tried on the "
            "tuning split: give smaller ones."
        )
    return settings.candidates[losses.index(min(finite_losses))].model_dump()


def diverged_at(after: CarriedState) -> list[int]:
    """Tokens of a split at which learning diverged, before the end of a range."""
    return Course.of(after.learned).diverged_at if after.learned else []


def learning_figures(
    settings: Dynamic,
    record: Callable[[str], Mapping[str, Any]],
    tune_split: str | None,
    places: Sequence[int],
) -> dict[str, Any]:
    """The entry `adaptation` of `metrics.json`: settings, numbers, what was tried, and where.

    Args:
        places: tokens at which learning diverged in the scored split.
    """
    numbers = chosen_numbers(settings, record)
    candidates = settings.candidates
    tried = []
    for number, candidate in enumerate(candidates if len(candidates) > 1 else ()):
        result = record(candidate_key(number))
        loss = None if result["nll"] is None else perplexity(result["nll"], result["tokens"])
        tried.append({**candidate.model_dump(), "perplexity": loss})
    paces = [numbers, *settings.slower(numbers)]
    return {
        "what": settings.what,
        "scope": settings.scope,
        "segment": settings.segment,
        "rank": settings.rank,
        "epsilon": settings.epsilon,
        **numbers.model_dump(),
        "tune_split": tune_split if tried else None,
        "tried": tried,
        "diverged": [
            {"token": place, "rate": pace.rate, "then": slower.rate}
            for place, (pace, slower) in zip(places, pairwise(paces), strict=False)
        ],
        "gradients": dict(record(MEASURE)) if measures_gradients(settings) else None,
    }
