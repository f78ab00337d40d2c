"""Plan of an evaluation: passes over the splits, cut into parts, and the disk space that they need.

Planning reads no model. It reads the ids of the reported split.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, lcm
from typing import Literal

import torch

from stages.adaptation import UPDATE_RULES
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, ShardPlan
from stages.diagnostics.probe import Probe
from stages.encoding.carried_state import CarriedState, StateStore
from stages.encoding.side_model import side_windows
from stages.encoding.window_settings import TokenRange, shard_unit, state_bytes
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.figures.breakdown import Breakdown, find_breakdown
from stages.evaluation.figures.intervals import UnitFiles
from stages.evaluation.figures.places import LastWords, find_last_words, places_of, units_of
from stages.evaluation.figures.token_scores import BOOK_COLUMNS, ScoreFiles
from stages.evaluation.learning import (
    LEARN,
    MEASURE,
    SETTLE,
    TRIED_TOKENS,
    candidate_key,
    measures_gradients,
)
from stages.evaluation.opening import open_probes, open_rows
from stages.evaluation.range_reader import RangeReader, RangeResult
from stages.examples.cutting import WindowSettings
from stages.memory.predicted_gain import PredictedGain
from stages.methods.defaults import is_own_datastore
from stages.models.computing import resolve_device
from stages.models.config import model_of
from stages.models.language_model import unfilled_model
from stages.reports.fields import BESIDE_BOOK
from stages.retrieval.rows import MemoryRow
from stages.retrieval.sources.source import Needs
from stages.retrieval.weights.policy import WeightPolicy, open_policies
from stages.text.tokens import open_split

SCORE = "score"
"""Name of the pass over the split that is reported."""


@dataclass(frozen=True)
class Part(TokenRange):
    """A task on a range of a split: its tokens are observed or scored, or a choice is made from the
    whole split.

    For the tasks `translate` and `try`, [start, stop) counts sentences instead of tokens.
    """

    task: Literal[
        "gradients", "learn", "settle", "sample", "observe", "try", "choose", "score", "translate"
    ]
    row: int = 0
    """Row whose memory is read while translating; 0: the model alone."""
    candidate: int = 0
    """Number of the candidate settings that are tried."""

    @property
    def unit(self) -> str:
        return "sentences" if self.task in ("translate", "try") else "tokens"


@dataclass(frozen=True)
class RangePass:
    """A pass over a split of `tokens` tokens, in parts of `step` tokens; each part starts from the
    state before it.
    """

    name: str
    words: str
    """Words shown while the pass runs, before the name of the split."""
    contexts: bool
    """Whether features of contexts are computed, for weights that need them."""
    split: str
    tokens: int
    step: int
    reach: int
    """Largest distance, in tokens, that readings reach back from a token; 0 for none."""
    chained: bool
    """Whether a part resumes from the state of the part before it."""

    @property
    def parts(self) -> list[Part]:
        """All of the split, in order."""
        return [self._part(number) for number in range(ceil(self.tokens / self.step))]

    @property
    def choice(self) -> Part:
        """The shard after all parts, which chooses settings from their observations."""
        return Part(f"{self.name}-choice", 0, self.tokens, "choose", phase=f"{self.name}-choice")

    @property
    def sample(self) -> Part:
        """The shard that reads short ranges of the split, before the first pass over it."""
        return Part("sample", 0, self.tokens, "sample", phase="sample")

    def number(self, part: Part) -> int:
        """Number of a part in the pass."""
        return part.start // self.step

    def read_range(
        self,
        part: Part,
        reader: RangeReader,
        states: StateStore,
        output: ShardOutput,
        where: PredictedGain | None = None,
    ) -> RangeResult:
        """Read a part with the model, resuming from the part before it; `where` selects the tokens
        to search for.
        """
        carried = self._carried_into(part, reader, states)
        probed = self.name == SCORE
        result = reader.read(
            self.split,
            part.start,
            part.stop,
            carried,
            probed=probed,
            contexts=self.contexts,
            where=where,
        )
        # no later part reaches back to this state, so its file can be deleted
        idle = self.number(part) - self._parts_back - 1
        states.keep(
            output, part.key, result.after, idle=self._part(idle).key if idle >= 0 else None
        )
        return result

    def state_bytes(self, of_one: int) -> int:
        """Peak size of the states on disk: the states to resume from, and the states of two parts
        under way.
        """
        return (self._parts_back + 1 + 2) * of_one

    def _carried_into(self, part: Part, reader: RangeReader, states: StateStore) -> CarriedState:
        """The state before a part: from memory, if this process computed the part before.

        Otherwise it is rebuilt: the tokens after the last saved state are read once more.
        """
        number = self.number(part)
        latest = states.after(self._part(number - 1).key) if number else None
        if latest is not None:
            return latest
        reached = max(0, number - self._parts_back)
        carried = CarriedState(reached * self.step)
        lost = list[TokenRange]()
        if reader.carries_state:
            carried, lost = states.latest(map(self._part, reversed(range(reached))))
        for earlier in (
            *lost,
            *map(self._part, range(reached, number)),
        ):  # cut as before: other cuts round differently
            carried = reader.past(self.split, earlier.start, earlier.stop, carried)
        return carried

    @property
    def _parts_back(self) -> int:
        """Number of earlier parts that the readings of a part may reach."""
        return ceil(self.reach / self.step)

    def _part(self, number: int) -> Part:
        start = number * self.step
        stop = min(start + self.step, self.tokens)
        task: Literal["score", "observe"] = "score" if self.name == SCORE else "observe"
        title = f"{self.words} {self.split}, {self.tokens:,} tokens"
        chain = self.name if self.chained else None
        return Part(
            f"{self.name}-{number:06d}",
            start,
            stop,
            task,
            phase=self.name,
            title=title,
            chain=chain,
        )


ENTRIES_PER_SHARD = 1 << 23
"""The most neighbours that a shard reads: 100 MB of ids and distances."""
INPUTS_PER_SHARD = 1 << 18
"""The most inputs of overlapping windows whose representations a shard keeps."""
MOST_TOKENS_PER_SHARD = 1 << 15
ARITHMETIC_PER_SHARD = 4e12
"""The most additions and multiplications of the model in a shard: two minutes of a core at 30
billion a second. What an interruption loses is the shard under way.
"""
SENTENCES_PER_SHARD = 256
BLEU_SENTENCES = 200
"""The most sentences that are translated with each candidate."""


@dataclass(frozen=True)
class Plan(ShardPlan[Part]):
    """The splits to read, and the figures to report.

    A choice follows every pass over the tuning split.
    """

    tuning: tuple[RangePass, ...]
    """Passes over the tuning split, in order; none if nothing is tuned."""
    scoring: RangePass
    tries: list[Part]
    """Parts that translate with each candidate, if BLEU chooses the settings."""
    last_words: dict[str, LastWords] | None
    """Tokens that count, by split, if only last words do; None: all tokens count."""
    breakdown: Breakdown
    scores: ScoreFiles | None
    unit_files: UnitFiles
    """Files from which confidence intervals of changes are computed."""

    def pass_of(self, part: Part) -> RangePass:
        """The pass that a part belongs to."""
        return next(
            one
            for one in (*self.tuning, self.scoring)
            if part.phase in (one.name, one.choice.phase, one.sample.phase)
        )


def plan_evaluation(job: Job[EvaluateConfig]) -> Plan:
    """Plan the work; finds last words, repeated paragraphs and frequencies in the ids of the text."""
    config = job.config
    read = job.inputs.artifacts
    if config.tune_split == config.split:
        job.reporter.warning(f"Memory is tuned on {config.split!r}, the split that is scored.")
    rows = rows_of_report(job)
    last_words = _last_words(job)
    policies = open_policies(rows, tuned=config.tune_split is not None)
    reach = Needs.of_all(
        needs for policy in policies for needs in (policy.row.needs, policy.needs)
    ).reach
    step = _tokens_per_shard(job)
    carried = _state_bytes(job, rows) + _learned_bytes(job)

    def over(split: str, name: str, words: str, contexts: bool = True) -> RangePass:
        return RangePass(
            name, words, contexts, split, tokens_of(job, split), step, reach, bool(reach or carried)
        )

    passes = dict.fromkeys(one for policy in policies for one in policy.passes)
    tuning = tuple(over(config.tune_split, *one) for one in passes if config.tune_split is not None)
    scoring = over(config.split, SCORE, "scoring")
    breakdown = find_breakdown(read, config.split, config.frequency, rows, last_words)
    unit_files = _unit_files(job, rows, breakdown)
    tuned_tokens = tuning[0].tokens if tuning else 0
    if tuning and last_words is not None:
        tuned_tokens = last_words[tuning[0].split].tokens
    tried = _tries(job, policies) if config.tune_by == "bleu" else []
    tuned = [part for one in tuning for part in (*one.parts, *tried, one.choice)]
    scores = _score_files(job, last_words)
    return Plan(
        [
            *_learning_parts(job),
            *(one.sample for one in tuning[:1]),
            *tuned,
            *scoring.parts,
            *translations(job, 1 + len(rows)),
        ],
        tuning,
        scoring,
        tried,
        arrays=[] if scores is None else list(scores.arrays.values()),
        scratch_bytes=sum(policy.scratch_bytes(tuned_tokens) for policy in policies)
        + unit_files.scratch_bytes
        + sum(one.state_bytes(carried) for one in (*tuning, scoring)),
        last_words=last_words,
        breakdown=breakdown,
        scores=scores,
        unit_files=unit_files,
    )


def _learning_parts(job: Job[EvaluateConfig]) -> list[Part]:
    """Parts that prepare a model that learns: gradients of train, and every candidate on the first
    tokens of the tuning split.
    """
    dynamic = job.config.dynamic
    split = job.config.tune_split
    if dynamic is None:
        return []
    parts = []
    if measures_gradients(dynamic):
        title = "measuring gradients of train"
        parts.append(Part(MEASURE, 0, 0, "gradients", phase=MEASURE, title=title))
    count = len(dynamic.candidates)
    if count > 1:
        assert split is not None, "candidates are tried on a tuning split"
        stop = min(TRIED_TOKENS, tokens_of(job, split))
        title = f"trying {count} rates and decays on {split}, {stop:,} tokens"
        parts += [
            Part(candidate_key(n), 0, stop, "learn", 0, n, phase=LEARN, title=title)
            for n in range(count)
        ]
        parts.append(Part(SETTLE, 0, stop, "settle", phase=SETTLE))
    return parts


def _learned_bytes(job: Job[EvaluateConfig]) -> int:
    """Bytes of what a model learns, which every part carries on; 0: it learns nothing."""
    dynamic = job.config.dynamic
    if dynamic is None:
        return 0
    model = unfilled_model(model_of(job.inputs["model"]).reading(job.config.windows))
    numbers: int = UPDATE_RULES.load(dynamic.what).state_numbers(model, dynamic)
    return numbers * torch.float32.itemsize


def translations(job: Job[EvaluateConfig], rows: int) -> list[Part]:
    """Parts that translate the split, once with each row; none without a beam."""
    split = job.inputs["tokens"].metrics["splits"][job.config.split]
    config = job.config
    starts = range(0, split["documents"] if config.beam else 0, SENTENCES_PER_SHARD)
    return [
        Part(
            f"translate-{row}-{number:06d}",
            start,
            min(start + SENTENCES_PER_SHARD, split["documents"]),
            "translate",
            row,
            phase=f"translate-{row}",
        )
        for row in range(rows)
        for number, start in enumerate(starts)
    ]


def _tries(job: Job[EvaluateConfig], policies: Sequence[WeightPolicy]) -> list[Part]:
    """Parts that translate the first sentences of the tuning split, one for each candidate of a
    row.
    """
    split = job.config.tune_split
    assert split is not None, "nothing is tuned without one"
    stop = min(BLEU_SENTENCES, job.inputs["tokens"].metrics["splits"][split]["documents"])
    title = f"translating {stop} sentences of {split} with each candidate"
    return [
        Part(f"try-{row}-{number:02d}", 0, stop, "try", row, number, phase="try", title=title)
        for row, policy in enumerate(policies, 1)
        for number in range(len(policy.candidates))
    ]


def rows_of_report(job: Job[EvaluateConfig]) -> tuple[MemoryRow, ...]:
    """Rows of the report below the model's own."""
    config = job.config
    return open_rows(
        job.inputs.artifacts,
        config.readings,
        config.windows,
        resolve_device(job.execution.device),
        above=config.above,
    )


def probes_of(job: Job[EvaluateConfig]) -> dict[str, Probe]:
    """Probes that apply to the model, by name."""
    return open_probes(job.inputs.artifacts, job.config.probe_options, job.config.split)


def tokens_of(job: Job[EvaluateConfig], split: str) -> int:
    return int(job.inputs["tokens"].metrics["splits"][split]["tokens"])


def _tokens_per_shard(job: Job[EvaluateConfig]) -> int:
    """Number of tokens in a shard, for a resolved configuration; with windows, a positive multiple
    of the stride.
    """
    config = job.config
    stride = config.stride or 1
    context = config.context or 1
    entries = max([1, *(reading.neighbors for reading in config.readings)])
    # from settings alone, so that shards are the same on every machine
    most = min(MOST_TOKENS_PER_SHARD, ENTRIES_PER_SHARD // entries)
    if stride < context and any(reading.reads_windows for reading in config.readings):
        most = min(most, INPUTS_PER_SHARD * stride // context)
    most = min(most, int(ARITHMETIC_PER_SHARD / _arithmetic_per_token(job)))
    # a shard ends where a window does: otherwise tokens would be scored with other contexts
    unit = shard_unit(job.inputs["model"], stride)
    if config.dynamic is not None:
        # The same for segments that weights learn from.
        unit = config.dynamic.segment or unit
    if config.open_book is not None:
        # The same for strides with one choice of passages.
        unit = lcm(unit, config.open_book.stride)
    return max(1, most // unit) * unit


def _arithmetic_per_token(job: Job[EvaluateConfig]) -> float:
    """Additions and multiplications of the model for a token that is scored.

    Each weight is used once for an input; overlapping windows read an input several times.
    """
    weights = int(job.inputs["model"].metrics["parameters"])
    stride = job.config.stride or 1
    readings = max(1.0, (job.config.context or 1) / stride)
    return 2 * max(weights, 1) * readings


def _state_bytes(job: Job[EvaluateConfig], rows: Sequence[MemoryRow]) -> int:
    """Bytes of the states carried from part to part, by the model, by side models, and by a separate
    encoder of search keys.
    """
    read = job.inputs.artifacts
    tokens = max(
        tokens_of(job, split)
        for split in (job.config.split, job.config.tune_split)
        if split is not None
    )
    own = state_bytes(read["model"], job.config.windows, tokens)
    own += _side_state_bytes(job, rows, tokens)
    if "datastore" not in read or is_own_datastore(read):
        return own
    if "neighbors" in read and not any(row.needs.exact for row in rows):
        return own
    return own + state_bytes(read["encoder"], WindowSettings.of(read["datastore"].config), tokens)


def _side_state_bytes(job: Job[EvaluateConfig], rows: Sequence[MemoryRow], tokens: int) -> int:
    """Bytes of the states of side models."""
    names = Needs.of_all(row.needs for row in rows).models
    artifacts = [job.inputs.artifacts[role] for role in job.inputs.artifacts]
    sides = {one.id: one for one in artifacts if one.kind == "model" and one.id in names}
    windows = job.config.windows
    return sum(state_bytes(side, side_windows(side, windows), tokens) for side in sides.values())


def _last_words(job: Job[EvaluateConfig]) -> dict[str, LastWords] | None:
    """Tokens that count, by split, if only last words do; None: all tokens count."""
    if job.config.score == "all":
        return None
    splits = {split for split in (job.config.split, job.config.tune_split) if split is not None}
    found = {split: find_last_words(job.inputs["tokens"], split) for split in sorted(splits)}
    for split, words in found.items():
        if words.unknown:
            job.reporter.warning(
                f"{words.unknown:,} of {words.passages:,} last words of {split} are not in the vocabulary: "
                "of them <unk> is predicted."
            )
    return found


def _unit_files(
    job: Job[EvaluateConfig], rows: Sequence[MemoryRow], breakdown: Breakdown
) -> UnitFiles:
    tokens = job.inputs["tokens"]
    places = places_of(
        open_split(tokens.zarr("tokens.zarr"), job.config.split), breakdown.last_words
    )
    units = units_of(places, None, tokens.config.get("documents"))
    beside = 0 if job.config.open_book is None else len(BESIDE_BOOK)
    return UnitFiles(units, breakdown.outside, 1 + len(rows) + beside)


def _score_files(
    job: Job[EvaluateConfig], last_words: Mapping[str, LastWords] | None
) -> ScoreFiles | None:
    config = job.config
    if not config.save_token_scores:
        return None
    readings = len(config.readings)
    probed = [column for probe in probes_of(job).values() for column in probe.columns]
    probed += [] if config.open_book is None else BOOK_COLUMNS
    if last_words is not None:
        return ScoreFiles(last_words[config.split].tokens, readings, None, probed)
    return ScoreFiles(tokens_of(job, config.split), readings, _tokens_per_shard(job), probed)
