"""Plan of an evaluation: passes over the splits, cut into parts, and the disk space that they need.

Planning reads no model. It reads the ids of the reported split.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import lcm

import torch

from stages.adaptation import UPDATE_RULES
from stages.artifacts.stage import Job, ShardPlan
from stages.diagnostics.probe import Probe
from stages.encoding.side_model import side_windows
from stages.encoding.window_settings import shard_unit, state_bytes
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
from stages.evaluation.passes import SCORE, Part, RangePass
from stages.examples.cutting import WindowSettings
from stages.methods.defaults import is_own_datastore
from stages.models.computing import resolve_device
from stages.models.config import model_of
from stages.models.language_model import unfilled_model
from stages.reports.fields import BESIDE_BOOK
from stages.retrieval.rows import MemoryRow
from stages.retrieval.sources.source import Needs
from stages.retrieval.weights.policy import WeightPolicy, open_policies
from stages.text.tokens import open_split

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
        for range_pass in (*self.tuning, self.scoring):
            phases = (range_pass.name, range_pass.choice.phase, range_pass.sample.phase)
            if part.phase in phases:
                return range_pass
        raise LookupError(f"no pass has the phase {part.phase!r}")


def plan_evaluation(job: Job[EvaluateConfig]) -> Plan:
    """Plan the work; finds last words, repeated paragraphs and frequencies in the ids of the text."""
    config = job.config
    read = job.inputs.artifacts
    if config.tune_split == config.split:
        job.reporter.warning(f"Memory is tuned on {config.split!r}, the split that is scored.")
    rows = rows_of_report(job)
    last_words = _last_words(job)
    policies = open_policies(rows, tuned=config.tune_split is not None)
    needs = [policy.row.needs for policy in policies] + [policy.needs for policy in policies]
    reach = Needs.of_all(needs).reach
    step = _tokens_per_shard(job)
    carried = _state_bytes(job, rows) + _learned_bytes(job)

    def over(split: str, name: str, words: str, contexts: bool = True) -> RangePass:
        tokens = tokens_of(job, split)
        chained = bool(reach or carried)
        return RangePass(name, words, contexts, split, tokens, step, reach, chained)

    scoring = over(config.split, SCORE, "scoring")
    tuning = []
    if config.tune_split is not None:
        # rows whose policies have a pass in common share it
        weight_passes = dict.fromkeys(chain.from_iterable(policy.passes for policy in policies))
        tuning = [over(config.tune_split, *weight_pass) for weight_pass in weight_passes]

    tries = _tries(job, policies) if config.tune_by == "bleu" else []
    parts = _learning_parts(job)
    if tuning:
        parts.append(tuning[0].sample)
    for range_pass in tuning:
        parts += [*range_pass.parts, *tries, range_pass.choice]
    parts += scoring.parts
    parts += translations(job, 1 + len(rows))

    tuned_tokens = tuning[0].tokens if tuning else 0
    if tuning and last_words is not None:
        tuned_tokens = last_words[tuning[0].split].tokens
    breakdown = find_breakdown(read, config.split, config.frequency, rows, last_words)
    unit_files = _unit_files(job, rows, breakdown)
    scratch_bytes = unit_files.scratch_bytes
    scratch_bytes += sum(policy.scratch_bytes(tuned_tokens) for policy in policies)
    scratch_bytes += sum(range_pass.state_bytes(carried) for range_pass in (*tuning, scoring))

    scores = _score_files(job, last_words)
    return Plan(
        parts,
        tuple(tuning),
        scoring,
        tries,
        arrays=[] if scores is None else list(scores.arrays.values()),
        scratch_bytes=scratch_bytes,
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
    if not job.config.beam:
        return []
    count = job.inputs["tokens"].metrics["splits"][job.config.split]["documents"]
    parts = []
    for row in range(rows):
        phase = f"translate-{row}"
        for number, start in enumerate(range(0, count, SENTENCES_PER_SHARD)):
            stop = min(start + SENTENCES_PER_SHARD, count)
            key = f"{phase}-{number:06d}"
            parts.append(Part(key, start, stop, "translate", row, phase=phase))
    return parts


def _tries(job: Job[EvaluateConfig], policies: Sequence[WeightPolicy]) -> list[Part]:
    """Parts that translate the first sentences of the tuning split, one for each candidate of a
    row.
    """
    split = job.config.tune_split
    assert split is not None, "nothing is tuned without one"
    stop = min(BLEU_SENTENCES, job.inputs["tokens"].metrics["splits"][split]["documents"])
    title = f"translating {stop} sentences of {split} with each candidate"
    parts = []
    for row, policy in enumerate(policies, 1):
        for number in range(len(policy.candidates)):
            key = f"try-{row}-{number:02d}"
            parts.append(Part(key, 0, stop, "try", row, number, phase="try", title=title))
    return parts


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
    max_tokens = min(MOST_TOKENS_PER_SHARD, ENTRIES_PER_SHARD // entries)
    if stride < context and any(reading.reads_windows for reading in config.readings):
        max_tokens = min(max_tokens, INPUTS_PER_SHARD * stride // context)
    max_tokens = min(max_tokens, int(ARITHMETIC_PER_SHARD / _arithmetic_per_token(job)))
    # a shard ends where a window does: otherwise tokens would be scored with other contexts
    unit = shard_unit(job.inputs["model"], stride)
    if config.dynamic is not None:
        # The same for segments that weights learn from.
        unit = config.dynamic.segment or unit
    if config.open_book is not None:
        # The same for strides with one choice of passages.
        unit = lcm(unit, config.open_book.stride)
    return max(1, max_tokens // unit) * unit


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
    num_bytes = state_bytes(read["model"], job.config.windows, tokens)
    num_bytes += _side_state_bytes(job, rows, tokens)
    if "datastore" not in read or is_own_datastore(read):
        return num_bytes
    if "neighbors" in read and not any(row.needs.exact for row in rows):
        return num_bytes
    return num_bytes + state_bytes(
        read["encoder"], WindowSettings.of(read["datastore"].config), tokens
    )


def _side_state_bytes(job: Job[EvaluateConfig], rows: Sequence[MemoryRow], tokens: int) -> int:
    """Bytes of the states of side models."""
    names = Needs.of_all(row.needs for row in rows).models
    # an artifact may have several roles
    sides = {}
    for artifact in job.inputs.artifacts.values():
        if artifact.kind == "model" and artifact.id in names:
            sides[artifact.id] = artifact
    windows = job.config.windows
    return sum(state_bytes(side, side_windows(side, windows), tokens) for side in sides.values())


def _last_words(job: Job[EvaluateConfig]) -> dict[str, LastWords] | None:
    """Tokens that count, by split, if only last words do; None: all tokens count."""
    if job.config.score == "all":
        return None
    result = {}
    splits = {split for split in (job.config.split, job.config.tune_split) if split is not None}
    for split in sorted(splits):
        words = find_last_words(job.inputs["tokens"], split)
        if words.unknown:
            job.reporter.warning(
                f"{words.unknown:,} of {words.passages:,} last words of {split} are not in the vocabulary: "
                "of them <unk> is predicted."
            )
        result[split] = words
    return result


def _unit_files(
    job: Job[EvaluateConfig], rows: Sequence[MemoryRow], breakdown: Breakdown
) -> UnitFiles:
    tokens = job.inputs["tokens"]
    places = places_of(
        open_split(tokens.zarr("tokens.zarr"), job.config.split), breakdown.last_words
    )
    units = units_of(places, None, tokens.config.get("documents"))
    num_rows_of_book = 0 if job.config.open_book is None else len(BESIDE_BOOK)
    return UnitFiles(units, breakdown.outside, 1 + len(rows) + num_rows_of_book)


def _score_files(
    job: Job[EvaluateConfig], last_words: Mapping[str, LastWords] | None
) -> ScoreFiles | None:
    config = job.config
    if not config.save_token_scores:
        return None
    readings = len(config.readings)
    columns: list[str] = []
    for probe in probes_of(job).values():
        columns += probe.columns
    if config.open_book is not None:
        columns += BOOK_COLUMNS
    if last_words is not None:
        return ScoreFiles(last_words[config.split].tokens, readings, None, columns)
    return ScoreFiles(tokens_of(job, config.split), readings, _tokens_per_shard(job), columns)
