"""How the work of an evaluation is cut, and what it needs on disk. No model is read; ids are, of what is reported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stages.artifacts.stage import Job
from stages.encoding.window_settings import shard_unit, state_bytes
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.range_pass import SCORE, TUNE, WEIGH, RangePass
from stages.methods.defaults import is_own_datastore
from stages.models.windows import WindowSettings

if TYPE_CHECKING:
    from stages.diagnostics.probe import Probe
    from stages.evaluation.figures.breakdown import Breakdown
    from stages.evaluation.figures.intervals import UnitFiles
    from stages.evaluation.figures.last_word import LastWords
    from stages.evaluation.figures.token_scores import ScoreFiles
    from stages.retrieval.rows import MemoryRow

ENTRIES_PER_SHARD = 1 << 23
"""Neighbours that a shard reads: 100 MB of ids and distances."""
INPUTS_PER_SHARD = 1 << 18
"""Inputs of overlapping windows whose representations a shard keeps."""
MOST_TOKENS_PER_SHARD = 1 << 15


@dataclass(frozen=True)
class Plan:
    """The splits that are read, and the figures that are reported."""

    tuning_pass: RangePass | None
    """None if nothing is tuned."""
    weighing_pass: RangePass | None
    """None if no weight is learned."""
    scoring_pass: RangePass
    chained: bool
    """Whether a part goes on from what the one before it read."""
    scratch_bytes: int
    last_words: "dict[str, LastWords] | None"
    """The tokens that alone count, of every split that is read; None: all."""
    breakdown: "Breakdown"
    scores: "ScoreFiles | None"
    unit_files: "UnitFiles | None"
    """Files that intervals of changes are made from; None: nothing is compared."""


def plan_evaluation(job: Job[EvaluateConfig]) -> Plan:
    """How the work is cut; last words, repeated paragraphs and frequencies are found here, in the ids of the text."""
    from stages.evaluation.figures.breakdown import find_breakdown

    config, read = job.config, job.inputs.artifacts
    if config.tune_split == config.split:
        job.reporter.warning(f"Memory is tuned on {config.split!r}, the split that is scored.")
    rows, last_words = rows_of_report(job), _last_words(job)
    reach = max((row.needs.reach for row in rows), default=0)
    tuning_pass = None if config.tune_split is None else _pass(job, TUNE, config.tune_split, reach)
    learned = any(row.learned for row in rows)
    weighing_pass = _pass(job, WEIGH, config.tune_split, reach) if learned and config.tune_split else None
    scoring_pass = _pass(job, SCORE, config.split, reach)
    carried = _state_bytes(job, rows)
    breakdown = find_breakdown(read, config.split, config.frequency, rows, last_words)
    unit_files = _unit_files(job, rows, breakdown)
    return Plan(
        tuning_pass,
        weighing_pass,
        scoring_pass,
        chained=bool(reach or carried),
        scratch_bytes=_tuning_bytes(job, rows, last_words)
        + (unit_files.scratch_bytes if unit_files is not None else 0)
        + sum(one.state_bytes(carried) for one in (tuning_pass, weighing_pass, scoring_pass) if one is not None),
        last_words=last_words,
        breakdown=breakdown,
        scores=_score_files(job, last_words),
        unit_files=unit_files,
    )


def rows_of_report(job: Job[EvaluateConfig]) -> "tuple[MemoryRow, ...]":
    """Rows of the table below the model."""
    from stages.evaluation.open import open_rows
    from stages.models.devices import resolve_device

    config = job.config
    return open_rows(job.inputs.artifacts, config.readings, config.windows, resolve_device(job.execution.device))


def probes_of(job: Job[EvaluateConfig]) -> "dict[str, Probe]":
    """Probes that have something to show of the model."""
    from stages.evaluation.open import open_probes

    return open_probes(job.inputs.artifacts, job.config.probe_options, job.config.split)


def tokens_of(job: Job[EvaluateConfig], split: str) -> int:
    return int(job.inputs["tokens"].metrics["splits"][split]["tokens"])


def _pass(job: Job[EvaluateConfig], phase: str, split: str, reach: int) -> RangePass:
    return RangePass(phase, split, tokens_of(job, split), _tokens_per_shard(job), reach)


def _tokens_per_shard(job: Job[EvaluateConfig]) -> int:
    """Tokens of one shard of a resolved configuration; whole strides, at least one, where there are windows."""
    config = job.config
    stride, context = config.stride or 1, config.context or 1
    entries = max([1, *(reading.neighbors for reading in config.readings)])
    most = min(MOST_TOKENS_PER_SHARD, ENTRIES_PER_SHARD // entries)
    if stride < context and any(reading.reads_windows for reading in config.readings):
        most = min(most, INPUTS_PER_SHARD * stride // context)
    unit = shard_unit(job.inputs["model"], stride)
    return max(1, most // unit) * unit


def _state_bytes(job: Job[EvaluateConfig], rows: "Sequence[MemoryRow]") -> int:
    """Size of the states that the model, and another that makes search keys, carry from part to part."""
    read = job.inputs.artifacts
    tokens = max(tokens_of(job, split) for split in (job.config.split, job.config.tune_split) if split is not None)
    own = state_bytes(read["model"], job.config.windows, tokens)
    if "datastore" not in read or is_own_datastore(read):
        return own
    if "neighbors" in read and not any(row.needs.exact for row in rows):
        return own
    return own + state_bytes(read["encoder"], WindowSettings.of(read["datastore"].config), tokens)


def _tuning_bytes(
    job: Job[EvaluateConfig], rows: "Sequence[MemoryRow]", last_words: "Mapping[str, LastWords] | None"
) -> int:
    """Size of what the shards of the tuning split leave."""
    from stages.evaluation.tuning.tuning import scratch_bytes

    split = job.config.tune_split
    if split is None:
        return 0
    return scratch_bytes(rows, tokens_of(job, split) if last_words is None else last_words[split].tokens)


def _last_words(job: Job[EvaluateConfig]) -> "dict[str, LastWords] | None":
    """The tokens that alone count, of every split that is read; None: all."""
    from stages.evaluation.figures.last_word import find_last_words

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


def _unit_files(job: Job[EvaluateConfig], rows: "Sequence[MemoryRow]", breakdown: "Breakdown") -> "UnitFiles | None":
    from stages.evaluation.figures.intervals import UnitFiles
    from stages.evaluation.figures.places import places_of, units_of
    from stages.text.tokens import open_split

    if not rows and "baseline" not in job.inputs:
        return None
    tokens = job.inputs["tokens"]
    places = places_of(open_split(tokens.zarr("tokens.zarr"), job.config.split), breakdown.last_words)
    units = units_of(places, None, tokens.config.get("documents"))
    return UnitFiles(units, breakdown.outside, 1 + len(rows))


def _score_files(job: Job[EvaluateConfig], last_words: "Mapping[str, LastWords] | None") -> "ScoreFiles | None":
    from stages.evaluation.figures.token_scores import ScoreFiles

    config = job.config
    if not config.save_token_scores:
        return None
    readings = len(config.readings)
    probed = [column for probe in probes_of(job).values() for column in probe.columns]
    if last_words is not None:
        return ScoreFiles(last_words[config.split].tokens, readings, None, probed)
    return ScoreFiles(tokens_of(job, config.split), readings, _tokens_per_shard(job), probed)
