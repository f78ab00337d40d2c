"""Stage evaluate: model, and the memory it reads -> report.

Scores a split with the model alone and with memory on top. A shard is a range of tokens: of the
tuning split, which leaves sums over the grid, then, once the best setting is chosen and recorded, of the
split that is reported, read with it. The model reads a token once in each; what later tokens need of it is
handed on. Where a weight is learned, the tuning split is read once more between the two, with what was chosen.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, Inputs, Job, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.diagnostics.options import resolve_options
from stages.encoding.window_settings import resolve_windows, state_bytes
from stages.errors import ArtifactError
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.plan import Plan, plan_evaluation, probes_of, rows_of_report
from stages.evaluation.range_pass import LEARN, SAMPLE, SCORE, SELECT, TUNE, WEIGH, Part
from stages.lineage.corpus import require_split, require_tune_split
from stages.lineage.evaluation import (
    artifacts_read,
    datastores_read,
    language_model,
    memory_source,
    require_same_scored,
)
from stages.lineage.neighbors import resolve_exclusion
from stages.methods.defaults import default_memory, lacking_memory
from stages.retrieval.reading import Reading, parse_readings
from stages.retrieval.resolve import resolve_reading
from stages.search.size import memory_to_search

if TYPE_CHECKING:
    from stages.encoding.state_store import StateStore
    from stages.evaluation.evaluator import Evaluator
    from stages.evaluation.tuning.tuning import Tuning


@dataclass(frozen=True)
class Work:
    """Everything that computing parts needs."""

    plan: Plan
    evaluator: "Evaluator"
    tuning: "Tuning"
    states: "StateStore"


class Evaluate(ShardedStage[EvaluateConfig, Plan, Work, Part]):
    """Scores a split; roles: model, tokens; where a datastore is read: (neighbors,) index, datastore, encoder;
    of a model with a gate: gate_neighbors.
    """

    name = "evaluate"
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
        from stages.models.devices import device_type, resolve_precision

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
                "precision": resolve_precision(config.precision, device_type(execution.device)),
            }
        )

    def device(self, execution: Execution) -> str:
        from stages.models.devices import device_name

        return device_name(execution.device)

    def memory(self, config: EvaluateConfig, inputs: Inputs) -> int | None:
        model = 4 * int(inputs["model"].metrics["parameters"])
        tokens = inputs["tokens"].metrics["splits"][config.split]["tokens"]
        return model + state_bytes(inputs["model"], config.windows, tokens) + search_memory(inputs)

    def plan(self, job: Job[EvaluateConfig]) -> Plan:
        from stages.search.open import tell_of_large

        for index in indexes_read(job.inputs):
            tell_of_large(index.file("index.faiss"), job.reporter)
        return plan_evaluation(job)

    def arrays(self, job: Job[EvaluateConfig], plan: Plan) -> Sequence[ArrayLayout]:
        return [] if plan.scores is None else list(plan.scores.arrays.values())

    def output_bytes(self, job: Job[EvaluateConfig], plan: Plan) -> int:
        return plan.scratch_bytes + super().output_bytes(job, plan)

    def shards(self, job: ShardJob[EvaluateConfig], plan: Plan) -> Sequence[Part]:
        scoring = plan.scoring_pass.parts
        if plan.tuning_pass is None:
            return scoring
        sample, select, learn = (Part(phase, 0, plan.tuning_pass.tokens, phase) for phase in (SAMPLE, SELECT, LEARN))
        learning = [] if plan.weighing_pass is None else [*plan.weighing_pass.parts, learn]
        return [sample, *plan.tuning_pass.parts, select, *learning, *scoring]

    def phase(self, shard: Part) -> str:
        return shard.phase

    def doing(self, job: ShardJob[EvaluateConfig], plan: Plan, phase: str) -> str | None:
        words = {TUNE: "tuning on", LEARN: "learning weights on", SCORE: "scoring"}
        one = plan.scoring_pass if phase == SCORE else plan.tuning_pass
        return f"{words[phase]} {one.split}, {one.tokens:,} tokens" if phase in words and one is not None else None

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
        tuning = Tuning(job.folder, job.record, evaluator.rows, plan.tuning_pass, plan.weighing_pass)
        return Work(plan, evaluator, tuning, StateStore(job.folder, evaluator.reader.device))

    def run_shard(self, job: ShardJob[EvaluateConfig], work: Work, shard: Part) -> ShardOutput:
        if shard.phase == SCORE:
            return self._score(job, work, shard)
        assert work.plan.tuning_pass is not None
        output = ShardOutput(job.folder)
        if shard.phase == SAMPLE:
            output.record |= work.tuning.sample(work.evaluator)
        elif shard.phase == SELECT:
            output.record |= work.tuning.choose()
        elif shard.phase == LEARN:
            output.record |= work.tuning.learn()
        elif shard.phase == WEIGH:
            assert work.plan.weighing_pass is not None
            result = work.plan.weighing_pass.read_range(shard, work.evaluator, work.states, output)
            work.tuning.keep_positions(work.evaluator, shard.key, result.scored_range, output)
        else:
            result = work.plan.tuning_pass.read_range(shard, work.evaluator, work.states, output)
            work.tuning.keep_sums(work.evaluator, shard.key, result.scored_range, output)
        return output

    def _score(self, job: ShardJob[EvaluateConfig], work: Work, shard: Part) -> ShardOutput:
        """Score one range with the model alone and with every row, at the selected settings."""
        from stages.evaluation.figures.shard_record import shard_record, token_scores

        output, scoring_pass, scores = ShardOutput(job.folder), work.plan.scoring_pass, work.plan.scores
        settings = work.tuning.settings
        gate = settings[0].gate if settings else None
        result = scoring_pass.read_range(shard, work.evaluator, work.states, output, gate)
        passage = work.evaluator.score(result, settings)
        if scores is not None:
            scores.write(output, scoring_pass.number(shard), token_scores(passage))
        if work.plan.unit_files is not None:
            work.plan.unit_files.write(output, scoring_pass.number(shard), passage, shard.start, shard.stop)
        output.record |= shard_record(passage, shard.start, shard.stop, work.plan.breakdown)
        if output.record["nll"][0] is None:
            raise ArtifactError(
                f"{job.inputs['model'].reference} gives probabilities that are not numbers, or zero, "
                f"in tokens {shard.start} to {shard.stop} of {job.config.split}: train it again."
            )
        return output

    def finish(self, job: Job[EvaluateConfig], plan: Plan) -> dict[str, Any]:
        from stages.charts.figure import write_figures
        from stages.charts.report import report_charts
        from stages.diagnostics.shown import probe_charts
        from stages.evaluation.figures import report
        from stages.evaluation.figures.metrics_file import metrics_of
        from stages.evaluation.figures.row_names import with_model_named
        from stages.evaluation.figures.tuned import tuning_figures
        from stages.evaluation.tuning.tuning import Tuning
        from stages.reports.remarks.table import REPORT, remarks_on

        shards, rows = plan.scoring_pass.parts, rows_of_report(job)
        tuning = Tuning(job.folder, job.draft.record, rows, plan.tuning_pass, plan.weighing_pass)
        if plan.scores is not None:
            plan.scores.finish(job.draft, [plan.scoring_pass.number(shard) for shard in shards])
        records = [job.draft.record(shard.key) for shard in shards]
        probes = probes_of(job)
        seen = {name: [record["probes"][name] for record in records] for name in probes}
        shown = {name: one.metrics(seen[name]) for name, one in probes.items()}
        made = metrics_of(job, plan, rows, tuning, records, probes, shown)
        made["tuning"] = tuning_figures(tuning.tuned(), _largest_amounts(job))
        made["remarks"] = [remark.code for remark in remarks_on(REPORT, made)]
        files = {file: held for name, one in probes.items() for file, held in one.files(seen[name]).items()}
        learned = tuning.learned()
        if learned is not None and learned["network"] is not None:
            _write(job, "weight-network.json", learned["network"])
        for name, content in {"metrics.json": made, **files}.items():
            _write(job, name, content)
        drawn = with_model_named(made)
        charts = [chart for held in probe_charts(drawn, files).values() for chart in held]
        write_figures([*report_charts(drawn), *charts], job.draft.add)
        return {name: made[name] for name in report.HEADLINE if name in made}


def indexes_read(inputs: Inputs) -> list[Artifact]:
    """The index that is searched, if one is."""
    return [inputs["index"]] if "index" in inputs and "neighbors" not in inputs else []


def search_memory(inputs: Inputs) -> int:
    """Bytes of memory without which the index cannot be searched."""
    return sum(memory_to_search(a.config["index"], a.metrics.get("bytes")) or 0 for a in indexes_read(inputs))


def _readings(config: EvaluateConfig, inputs: Inputs, execution: Execution) -> tuple[Reading, ...]:
    """The readings that are asked for, or what the model's method is read with."""
    if config.memory is not None:
        return config.readings
    lacking = lacking_memory(inputs.artifacts)
    if lacking is not None:
        execution.reporter.warning(lacking)
    return parse_readings(default_memory(inputs.artifacts))


def _largest_amounts(job: Job[EvaluateConfig]) -> dict[str, int]:
    """The most neighbours and positions that could be read: those stored beforehand, all rows, the whole split."""
    stored = job.inputs["neighbors"].config["k"] if "neighbors" in job.inputs else None
    rows = job.inputs["datastore"].metrics["rows"] if "datastore" in job.inputs else 0
    length = job.inputs["tokens"].metrics["splits"][job.config.split]["tokens"]
    return {"k": rows if stored is None else stored, "size": length}


def _write(job: Job[EvaluateConfig], name: str, content: Mapping[str, Any]) -> None:
    job.draft.add(name).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
