"""Stage evaluate: model, and the memory it reads -> report.

Scores a split with the model alone and with memory on top. A shard is a range of tokens: of the
tuning split, which leaves sums over the grid, then of the split that is reported, read with the
best setting. The model reads a token once in each; what later tokens need of it is handed on.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, Inputs, Job, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.diagnostics import PROBES
from stages.diagnostics.options import option_names, resolve_options
from stages.diagnostics.passage import spelled_passage
from stages.encoding.window_settings import WindowedConfig, resolve_windows, shard_unit, state_bytes
from stages.errors import ArtifactError
from stages.evaluation.range_pass import SAMPLE, SCORE, TUNE, Part, RangePass
from stages.lineage.corpus import require_split, require_tune_split
from stages.lineage.evaluation import (
    artifacts_read,
    datastores_read,
    has_gate,
    language_model,
    memory_source,
    require_same_scored,
)
from stages.lineage.neighbors import resolve_exclusion
from stages.methods.defaults import default_memory, is_own_datastore, lacking_memory
from stages.models.windows import WindowSettings
from stages.retrieval.reading import Reading, parse_readings
from stages.retrieval.resolve import resolve_reading
from stages.search.exclusion import EXCLUSIONS

if TYPE_CHECKING:
    from stages.encoding.probe import Probe
    from stages.encoding.state_store import StateStore
    from stages.evaluation.evaluator import Evaluator
    from stages.evaluation.results.breakdown import Breakdown
    from stages.evaluation.results.last_word import LastWords
    from stages.evaluation.results.score_files import ScoreFiles
    from stages.evaluation.tuning.tuning import Tuning
    from stages.metrics import Counts
    from stages.retrieval.rows import MemoryRow

ENTRIES_PER_SHARD = 1 << 23
"""Neighbours that a shard reads: 100 MB of ids and distances."""
INPUTS_PER_SHARD = 1 << 18
"""Inputs of overlapping windows whose representations a shard keeps."""
MOST_TOKENS_PER_SHARD = 1 << 15


class EvaluateConfig(WindowedConfig):
    """Settings of evaluate."""

    split: str = "test"
    """Split that is scored."""
    tune_split: str | None = "valid"
    """Split on which numbers are tuned; None once resolved, if none is."""
    memory: tuple[str, ...] | None = None
    """Readings, in order; `none`: the plain model. None: those of the model's method, then kNN-LM where there
    is a datastore, all tuned."""
    gate_k: tuple[Annotated[int, Field(ge=0, le=1024)], ...] | None = None
    """Neighbours that the gate of a model reads: the first number makes the scores, perplexity is told of each; None:
    as many as in training."""
    passage: str | None = None
    """START:STOP, tokens of the split of which gates and neighbours are shown; None: the first 64."""
    score: Literal["all", "last-word"] = "all"
    """Tokens that count, in tuning too: all, or those of the last word of every document."""
    reset: Literal["none", "document"] = "none"
    """Whether windows and carried state begin anew at every document."""
    frequency: Literal["train", "split"] = "train"
    """Where tokens are counted for perplexity by frequency: in the training split, or in the scored one."""
    save_token_scores: bool = False
    """Whether `scores.zarr` is written."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of the forward pass."""
    exclude: Annotated[str, Field(pattern=f"^({EXCLUSIONS})$")] | None = None
    """Rows that a token may not find where the datastore was made of the split that is read: its own (self), those
    within N of it (window:N), or those of its document. None: there is no such split."""

    def canonical(self) -> dict[str, Any]:
        """As other settings, but without an exclusion that nothing needs: reports keep their ids."""
        settings = super().canonical()
        if settings["exclude"] is None:
            del settings["exclude"]
        return settings

    @property
    def probe_options(self) -> dict[str, Any]:
        """What is asked of probes."""
        return {name: getattr(self, name) for name in option_names()}

    @field_validator("memory", mode="before")
    @classmethod
    def _listed(cls, memory: Any) -> Any:
        return (memory,) if isinstance(memory, str) else memory

    @field_validator("passage")
    @classmethod
    def _range(cls, passage: str | None) -> str | None:
        return None if passage is None else spelled_passage(passage)

    @field_validator("memory")
    @classmethod
    def _spell(cls, memory: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if memory is None else tuple(r.spelled for r in parse_readings(memory))

    @property
    def readings(self) -> tuple[Reading, ...]:
        """What `memory` says, parsed; none for None."""
        return parse_readings(self.memory or ())


@dataclass(frozen=True)
class Plan:
    """What is read, and what is told of it."""

    tuning_pass: RangePass | None
    """None if nothing is tuned."""
    scoring_pass: RangePass
    chained: bool
    """Whether a part goes on from what the one before it read."""
    scratch_bytes: int
    last_words: "dict[str, LastWords] | None"
    """The tokens that alone count, of every split that is read; None: all."""
    breakdown: "Breakdown"
    scores: "ScoreFiles | None"


@dataclass(frozen=True)
class Work:
    """What computing parts needs."""

    plan: Plan
    evaluator: "Evaluator"
    tuning: "Tuning"
    states: "StateStore"


class Evaluate(ShardedStage[EvaluateConfig, Plan, Work, Part]):
    """Scores a split; roles: model, tokens; where a datastore is read: (neighbors,) index, datastore, encoder;
    of a model with a gate: gate_neighbors.
    """

    kind = "report"
    Config = EvaluateConfig

    def inputs(self, config: EvaluateConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        source = store.get(references["source"], "model", "index", "neighbors")
        asked = None if config.memory is None else any(reading.reads_datastore for reading in config.readings)
        memory = memory_source(source, references, store, asked)
        read = artifacts_read(language_model(source), memory, references, store)
        require_split(read["tokens"], config.split)
        if references.get("baseline") is not None:
            read["baseline"] = store.get(references["baseline"], "report")
            require_same_scored(read["baseline"], read["tokens"], config.split, config.score)
        return Inputs(read)

    def resolve(self, config: EvaluateConfig, inputs: Inputs, execution: Execution) -> EvaluateConfig:
        from stages.models.devices import resolve_device, resolve_precision

        readings = _readings(config, inputs, execution)
        by_window = any(reading.reads_windows for reading in readings)
        windows = resolve_windows(inputs["model"], config.asked_windows, segmented=by_window)
        tune_split = config.tune_split if any(r.choices for r in readings) else None
        if tune_split is not None:
            require_tune_split(inputs["tokens"], tune_split)
        splits = tuple(s for s in (config.split, tune_split) if s is not None)
        complete = [resolve_reading(r, inputs.artifacts, splits) for r in readings]
        options = resolve_options(config.probe_options, inputs.artifacts, splits)
        datastores = datastores_read(inputs.artifacts)
        return config.model_copy(
            update={
                **windows._asdict(),
                **options,
                "memory": tuple(reading.spelled for reading in complete),
                "tune_split": tune_split,
                "exclude": resolve_exclusion(config.exclude, inputs["tokens"], splits, datastores),
                "precision": resolve_precision(config.precision, resolve_device(execution.device)),
            }
        )

    def device(self, execution: Execution) -> str:
        from stages.models.devices import device_name

        return device_name(execution.device)

    def plan(self, job: Job[EvaluateConfig]) -> Plan:
        from stages.evaluation.results.breakdown import find_breakdown

        config, read = job.config, job.inputs.artifacts
        if config.tune_split == config.split:
            job.reporter.warning(f"Memory is tuned on {config.split!r}, the split that is scored.")
        rows, last_words = _rows(job), _last_words(job)
        reach = max((row.needs.reach for row in rows), default=0)
        tuning_pass = None if config.tune_split is None else _pass(job, TUNE, config.tune_split, reach)
        scoring_pass = _pass(job, SCORE, config.split, reach)
        carried = _state_bytes(job, rows)
        return Plan(
            tuning_pass,
            scoring_pass,
            chained=bool(reach or carried),
            scratch_bytes=_tuning_bytes(job, rows, last_words)
            + sum(one.state_bytes(carried) for one in (tuning_pass, scoring_pass) if one is not None),
            last_words=last_words,
            breakdown=find_breakdown(read, config.split, config.frequency, rows, last_words),
            scores=_score_files(job, last_words),
        )

    def arrays(self, job: Job[EvaluateConfig], plan: Plan) -> Sequence[ArrayLayout]:
        return [] if plan.scores is None else list(plan.scores.arrays.values())

    def output_bytes(self, job: Job[EvaluateConfig], plan: Plan) -> int:
        return plan.scratch_bytes + sum(array.nbytes for array in self.arrays(job, plan))

    def shards(self, job: ShardJob[EvaluateConfig], plan: Plan) -> Sequence[Part]:
        scoring = plan.scoring_pass.parts
        if plan.tuning_pass is None:
            return scoring
        return [Part(SAMPLE, SAMPLE, 0, plan.tuning_pass.tokens), *plan.tuning_pass.parts, *scoring]

    def phase(self, shard: Part) -> str:
        return shard.phase

    def chain(self, job: ShardJob[EvaluateConfig], plan: Plan, shard: Part) -> str | None:
        return shard.phase if plan.chained else None

    def open(self, job: ShardJob[EvaluateConfig], plan: Plan) -> Work:
        from stages.encoding.state_store import StateStore
        from stages.evaluation.open import open_evaluator
        from stages.evaluation.tuning.tuning import Tuning
        from stages.models.devices import resolve_device, tune_allocator

        config = job.config
        tune_allocator()
        evaluator = open_evaluator(
            job.inputs.artifacts,
            config.readings,
            config.windows,
            by_document=config.reset == "document",
            device=resolve_device(job.execution.device),
            precision=config.precision,
            options=config.probe_options,
            split=config.split,
            exclude=config.exclude or "self",
            last_words=plan.last_words,
        )
        tuning = Tuning(job.folder, job.record, evaluator.rows, plan.tuning_pass)
        return Work(plan, evaluator, tuning, StateStore(job.folder, evaluator.reader.device))

    def run_shard(self, job: ShardJob[EvaluateConfig], work: Work, shard: Part) -> ShardOutput:
        if shard.phase == SCORE:
            return self._score(job, work, shard)
        assert work.plan.tuning_pass is not None
        output = ShardOutput(job.folder)
        if shard.phase == SAMPLE:
            output.record |= work.tuning.sample(work.evaluator)
        else:
            result = work.plan.tuning_pass.read_range(shard, work.evaluator, work.states, output)
            work.tuning.keep_sums(work.evaluator, shard.key, result.scored_range, output)
        return output

    def _score(self, job: ShardJob[EvaluateConfig], work: Work, shard: Part) -> ShardOutput:
        """Score one range with the model alone and with every row, at the selected settings."""
        from stages.evaluation.results.shard_record import shard_record, token_scores

        output, scoring_pass, scores = ShardOutput(job.folder), work.plan.scoring_pass, work.plan.scores
        result = scoring_pass.read_range(shard, work.evaluator, work.states, output)
        passage = work.evaluator.score(result, [selected.settings for selected in work.tuning.selected])
        if scores is not None:
            scores.write(output, scoring_pass.number(shard), token_scores(passage))
        output.record |= shard_record(passage, shard.start, shard.stop, work.plan.breakdown)
        if output.record["nll"][0] is None:
            raise ArtifactError(
                f"{job.inputs['model'].reference} gives probabilities that are not numbers, or zero, "
                f"in tokens {shard.start} to {shard.stop} of {job.config.split}: train it again."
            )
        return output

    def finish(self, job: Job[EvaluateConfig], plan: Plan) -> dict[str, Any]:
        from stages.charts.drawing.files import write_figures
        from stages.charts.report import report_charts
        from stages.diagnostics.shown import probe_charts
        from stages.evaluation.results import report
        from stages.evaluation.tuning.tuning import Tuning

        shards, rows = plan.scoring_pass.parts, _rows(job)
        tuning = Tuning(job.folder, job.draft.record, rows, plan.tuning_pass)
        if plan.scores is not None:
            plan.scores.finish(job.draft, [plan.scoring_pass.number(shard) for shard in shards])
        for name, value in tuning.at_edge():
            job.reporter.warning(
                f"The best {name}, {value:.4g}, lies at the edge of its grid; give a list that goes on beyond it."
            )
        records = [job.draft.record(shard.key) for shard in shards]
        probes = _probes(job)
        seen = {name: [record["probes"][name] for record in records] for name in probes}
        shown = {name: one.metrics(seen[name]) for name, one in probes.items()}
        made = _metrics(job, plan, rows, tuning, records, shown)
        files = {file: held for name, one in probes.items() for file, held in one.files(seen[name]).items()}
        for name, content in {"metrics.json": made, **files}.items():
            _write(job, name, content)
        charts = [chart for held in probe_charts(made, files).values() for chart in held]
        write_figures([*report_charts(made), *charts], job.draft.add)
        return {name: made[name] for name in report.HEADLINE}


def _readings(config: EvaluateConfig, inputs: Inputs, execution: Execution) -> tuple[Reading, ...]:
    """The readings that are asked for, or what the model's method is read with."""
    if config.memory is not None:
        return config.readings
    lacking = lacking_memory(inputs.artifacts)
    if lacking is not None:
        execution.reporter.warning(lacking)
    return parse_readings(default_memory(inputs.artifacts))


def _rows(job: Job[EvaluateConfig]) -> "tuple[MemoryRow, ...]":
    """What stands below the model in the table."""
    from stages.evaluation.open import open_rows
    from stages.models.devices import resolve_device

    config = job.config
    return open_rows(job.inputs.artifacts, config.readings, config.windows, resolve_device(job.execution.device))


def _state_bytes(job: Job[EvaluateConfig], rows: "Sequence[MemoryRow]") -> int:
    """Size of the states that the model, and another that makes search keys, carry from part to part."""
    read = job.inputs.artifacts
    own = state_bytes(read["model"], job.config.windows)
    if "datastore" not in read or is_own_datastore(read):
        return own
    if "neighbors" in read and not any(row.needs.exact for row in rows):
        return own
    return own + state_bytes(read["encoder"], WindowSettings.of(read["datastore"].config))


def _tuning_bytes(
    job: Job[EvaluateConfig], rows: "Sequence[MemoryRow]", last_words: "Mapping[str, LastWords] | None"
) -> int:
    """Size of what the shards of the tuning split leave."""
    from stages.evaluation.tuning.tuning import scratch_bytes

    split = job.config.tune_split
    if split is None:
        return 0
    return scratch_bytes(rows, _tokens(job, split) if last_words is None else last_words[split].tokens)


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


def _pass(job: Job[EvaluateConfig], phase: str, split: str, reach: int) -> RangePass:
    return RangePass(phase, split, _tokens(job, split), _tokens_per_shard(job), reach)


def _tokens(job: Job[EvaluateConfig], split: str) -> int:
    return int(job.inputs["tokens"].metrics["splits"][split]["tokens"])


def _last_words(job: Job[EvaluateConfig]) -> "dict[str, LastWords] | None":
    """The tokens that alone count, of every split that is read; None: all."""
    from stages.evaluation.results.last_word import find_last_words

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


def _probes(job: Job[EvaluateConfig]) -> "dict[str, Probe]":
    """What has something to show of the model."""
    from stages.evaluation.open import open_probes

    return open_probes(job.inputs.artifacts, job.config.probe_options, job.config.split)


def _metrics(
    job: Job[EvaluateConfig],
    plan: Plan,
    memory: "Sequence[MemoryRow]",
    tuning: "Tuning",
    records: Sequence[Mapping[str, Any]],
    shown: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of `metrics.json`, from what the shards of the scored split left, and what probes `shown`."""
    from stages.evaluation.results import report

    totals, counts = report.Totals.of(records), _counts(job, plan)
    first = report.GATED if has_gate(job.inputs["model"]) else report.PLAIN
    names = [first, *(row.name for row in memory)]
    vocabulary = job.inputs["tokens"].metrics["vocabulary_size"]
    rows = report.table(names, tuning.memories(), totals, counts, _tokens(job, job.config.split), vocabulary)
    main = rows[1] if memory else rows[0]
    last_words = plan.breakdown.last_words
    probes = _probes(job)
    trained = job.inputs["model"].metrics
    unknown = report.unknown_tokens(names, totals)
    varied = [curve for name in shown for curve in probes[name].curves(shown[name], first)]
    return {
        "split": job.config.split,
        "score": job.config.score,
        "tokens": counts.tokens,
        "words": counts.words,
        "unknown_rate": unknown and unknown["rate"],
        "unknown_tokens": unknown,
        **({} if job.config.exclude is None else {"exclude": job.config.exclude}),
        **({} if last_words is None else {"unknown_words": last_words.unknown}),
        **{name: value for name, value in main.items() if name != "row"},
        "method": job.inputs["model"].config["method"],
        "training": {name: trained[name] for name in ("passes", "still_falling")} if "passes" in trained else None,
        "rows": rows,
        "baseline": report.baseline_row(job.inputs["baseline"]) if "baseline" in job.inputs else None,
        "outside_repeated_paragraphs": report.outside_repeated_paragraphs(names, totals, plan.breakdown.repeated),
        "frequency_buckets": report.frequency_buckets(names, totals, plan.breakdown.frequencies),
        "retrieval_accuracy": report.retrieval_accuracy(totals),
        "curves": [*report.curves(tuning.curves(), totals), *varied],
        **{name: shown.get(name) for name in PROBES.names()},
        "grid": tuning.grid(),
        "read": {role: artifact.reference for role, artifact in job.inputs.artifacts.items()},
    }


def _write(job: Job[EvaluateConfig], name: str, content: Mapping[str, Any]) -> None:
    job.draft.add(name).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _counts(job: Job[EvaluateConfig], plan: Plan) -> "Counts":
    """How long what is scored is: the split, or the last words of its passages."""
    from stages.metrics import Counts

    words = plan.breakdown.last_words
    if words is None:
        return Counts.of(job.inputs["tokens"].metrics["splits"][job.config.split])
    return Counts(tokens=words.tokens, characters=0, bytes=0, words=words.passages)


def _score_files(job: Job[EvaluateConfig], last_words: "Mapping[str, LastWords] | None") -> "ScoreFiles | None":
    from stages.evaluation.results.score_files import ScoreFiles

    config = job.config
    if not config.save_token_scores:
        return None
    readings = len(config.readings)
    probed = [column for probe in _probes(job).values() for column in probe.columns]
    if last_words is not None:
        return ScoreFiles(last_words[config.split].tokens, readings, None, probed)
    return ScoreFiles(_tokens(job, config.split), readings, _tokens_per_shard(job), probed)
