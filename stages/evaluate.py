"""Stage evaluate: model, and the memory it reads -> report.

Scores a split with the model alone and with memory added. Each row of memory has a policy, which
sets the weight of the memory. A policy asks for passes over the tuning split. Each range of a pass
is a shard, and stores the observations of the policies. A last shard records their choice. Then the
reported split is scored, range by range.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, Inputs, Job, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.diagnostics import PROBES
from stages.diagnostics.options import outside_probes, resolve_options
from stages.encoding.window_settings import resolve_windows
from stages.errors import ArtifactError
from stages.evaluation.config import REPORT, EvaluateConfig
from stages.evaluation.decoding import resolve_decoding, why_no_bleu
from stages.lineage.corpus import require_split, require_tune_split
from stages.lineage.evaluation import (
    artifacts_read,
    datastores_read,
    language_model,
    memory_source,
    require_same_scored,
)
from stages.lineage.indexes import EXACT, exact_index, named_apart
from stages.lineage.neighbors import resolve_exclusion
from stages.lineage.sources import PAIRS, PAIRS_SPLIT
from stages.methods.defaults import default_memory, lacking_memory
from stages.models.config import model_of
from stages.models.devices import device_type, resolve_device, resolve_precision, tune_allocator
from stages.retrieval.grammar import parse_readings
from stages.retrieval.reading import Reading
from stages.retrieval.sources.settings import resolve_reading

if TYPE_CHECKING:
    from stages.encoding.carried_state import StateStore
    from stages.evaluation.plan import Part, Plan
    from stages.evaluation.range_reader import RangeReader
    from stages.evaluation.row_weights import RowWeights
    from stages.translation.translator import Translator


@dataclass(frozen=True)
class Work:
    """Everything that a shard needs to be computed."""

    plan: "Plan"
    reader: "RangeReader"
    weights: "RowWeights"
    states: "StateStore"
    translators: "dict[int, Translator]" = field(default_factory=dict)
    """Translators that this process has opened, by the number of the row; 0: the model alone."""


class Evaluate(ShardedStage[EvaluateConfig, "Plan", Work, "Part"]):
    """Scores a split.

    Roles: model and tokens; with a datastore also index, datastore, encoder, and sometimes
    neighbors; the neighbours that enter the model's hidden states (`MODELS_OWN`).
    """

    name = "evaluate"
    kind = "report"
    Config = EvaluateConfig
    schema = REPORT

    def inputs(self, config: EvaluateConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        source = store.get(references["source"], "model", "index", "neighbors")
        asked = (
            None
            if config.memory is None
            else any("datastore" in reading.reads for reading in config.readings)
        )
        matched = any("text" in reading.reads for reading in config.readings)
        references, named = named_apart(references, store, matched)
        memory = memory_source(source, references, store, asked)
        read = artifacts_read(language_model(source), memory, references, store)
        require_split(read["tokens"], config.split)
        if matched:
            read[EXACT] = exact_index(read["tokens"], read["model"], named, store)
        if any("pairs" in reading.reads for reading in config.readings):
            read[PAIRS] = read["tokens"]
        if references.get("baseline") is not None:
            read["baseline"] = store.get(references["baseline"], "report")
            require_same_scored(read["baseline"], read["tokens"], config.split, config.score)
        return Inputs(read)

    def resolve(
        self, config: EvaluateConfig, inputs: Inputs, execution: Execution
    ) -> EvaluateConfig:
        readings = _readings(config, inputs, execution)
        by_window = any("windows" in reading.reads for reading in readings)
        windows = resolve_windows(inputs["model"], config.asked_windows, segmented=by_window)
        tune_split = config.tune_split if any(r.choices for r in readings) else None
        if tune_split is not None:
            require_tune_split(inputs["tokens"], tune_split)
        splits = tuple(s for s in (config.split, tune_split) if s is not None)
        complete = [resolve_reading(r, inputs.artifacts, splits) for r in readings]
        options = resolve_options(config.probe_options, inputs.artifacts, splits)
        datastores, matched = datastores_read(inputs.artifacts), inputs.artifacts.get(EXACT)
        paired = PAIRS in inputs.artifacts
        return config.model_copy(
            update={
                **windows._asdict(),
                **options,
                "memory": tuple(reading.spelled for reading in complete),
                "tune_split": tune_split,
                "exclude": resolve_exclusion(
                    config.exclude, inputs["tokens"], splits, datastores, matched, paired
                ),
                "precision": resolve_precision(config.precision, device_type(execution.device)),
                **resolve_decoding(config, complete, inputs.artifacts),
            }
        )

    def parts(self, config: EvaluateConfig, inputs: Inputs) -> set[str]:
        return outside_probes(inputs.artifacts, config.probe_options, config.split)

    def plan(self, job: Job[EvaluateConfig]) -> "Plan":
        from stages.evaluation.plan import plan_evaluation
        from stages.search.open import tell_of_large

        if "index" in job.inputs and "neighbors" not in job.inputs:
            tell_of_large(job.inputs["index"].file("index.faiss"), job.reporter)
        if (reason := why_no_bleu(job.config, model_of(job.inputs["model"]))) is not None:
            job.reporter.warning(f"no BLEU is computed: {reason}")
        return plan_evaluation(job)

    def open(self, job: ShardJob[EvaluateConfig], plan: "Plan") -> Work:
        from stages.encoding.carried_state import StateStore
        from stages.evaluation.opening import open_range_reader
        from stages.evaluation.row_weights import RowWeights
        from stages.retrieval.sources.source import Needs
        from stages.retrieval.weights.policy import open_policies

        config = job.config
        tune_allocator()
        reader, rows = open_range_reader(
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
        needs = Needs.of_all(policy.needs for policy in open_policies(rows, bool(plan.tuning)))
        weights = RowWeights(job.folder, job.record, rows, plan.tuning)
        reader = replace(reader, needs=reader.needs | needs)
        return Work(plan, reader, weights, StateStore(job.folder, reader.split_reader.device))

    def run_shard(self, job: ShardJob[EvaluateConfig], work: Work, shard: "Part") -> ShardOutput:
        from stages.evaluation.translations import best_points, try_point

        output = ShardOutput(job.folder)
        match shard.task:
            case "sample":
                output.record |= work.weights.sample(work.reader)
            case "observe":
                over = work.plan.pass_of(shard)
                result = over.read_range(shard, work.reader, work.states, output)
                work.weights.observe(shard, result.scored_range, output)
            case "try":
                output.record |= try_point(job, work.reader, work.weights, shard)
            case "choose":
                output.record |= work.weights.choose(
                    work.plan.pass_of(shard), best_points(job, work.plan)
                )
            case "score":
                self._score(job, work, shard, output)
            case "translate":
                self._translate(job, work, shard, output)
        return output

    def _translate(
        self, job: ShardJob[EvaluateConfig], work: Work, shard: "Part", output: ShardOutput
    ) -> None:
        """Translate the sentences of a shard, with the model alone or with a row of memory."""
        from stages.evaluation.translations import open_row, translate_shard

        if shard.row not in work.translators:
            policy = work.weights.policies()[shard.row - 1] if shard.row else None
            work.translators[shard.row] = open_row(job, work.reader, policy, job.config.split)
        translate_shard(job, work.translators[shard.row], shard, output)

    def _score(
        self, job: ShardJob[EvaluateConfig], work: Work, shard: "Part", output: ShardOutput
    ) -> None:
        """Score one range with the model alone and with every row, at the selected settings."""
        from stages.evaluation.score_range import score_range, shard_record, token_scores

        scoring, scores, policies = work.plan.scoring, work.plan.scores, work.weights.policies()
        where = policies[0].searches_where if policies else None
        result = scoring.read_range(shard, work.reader, work.states, output, where)
        scored = score_range(work.reader, result, policies)
        if scores is not None:
            scores.write(output, scoring.number(shard), token_scores(scored))
        if work.plan.unit_files is not None:
            work.plan.unit_files.write(
                output, scoring.number(shard), scored.nll(), shard.start, shard.stop
            )
        output.record |= shard_record(scored, shard.start, shard.stop, work.plan.breakdown)
        # a model that diverged would make every figure infinite: report it once, here
        if output.record["nll"][0] is None:
            raise ArtifactError(
                f"{job.inputs['model'].reference} gives probabilities that are not numbers, or zero, "
                f"in tokens {shard.start} to {shard.stop} of {job.config.split}: train it again."
            )

    def finish(self, job: Job[EvaluateConfig], plan: "Plan") -> dict[str, Any]:
        from stages.charts.figure import write_figures
        from stages.charts.report import report_charts
        from stages.diagnostics.options import probe_charts
        from stages.evaluation.figures import report
        from stages.evaluation.metrics_file import metrics_of
        from stages.evaluation.plan import probes_of, rows_of_report
        from stages.evaluation.row_weights import RowWeights
        from stages.evaluation.translations import bleu_figures
        from stages.reports.remarks.table import REPORT, remarks_on

        shards, rows = plan.scoring.parts, rows_of_report(job)
        weights = RowWeights(job.folder, job.draft.record, rows, plan.tuning)
        if plan.scores is not None:
            plan.scores.finish(job.draft, [plan.scoring.number(shard) for shard in shards])
        records = [job.draft.record(shard.key) for shard in shards]
        probes = probes_of(job)
        seen = {name: [record["probes"][name] for record in records] for name in probes}
        shown = {name: one.metrics(seen[name]) for name, one in probes.items()}
        made = metrics_of(job, plan, rows, weights, records, probes, shown)
        made["tuning"] = weights.tuning(_largest_amounts(job)) | bleu_figures(job, plan, weights)
        _add_translations(job, made, 1 + len(rows))
        made["remarks"] = [remark.code for remark in remarks_on(REPORT, made)]
        files = {
            file: held
            for name, one in probes.items()
            for file, held in one.files(seen[name]).items()
        }
        for name, content in {"metrics.json": made, **files, **weights.files()}.items():
            _write(job, name, content)
        charts = [chart for held in probe_charts(made, files).values() for chart in held]
        write_figures([*report_charts(made), *charts], job.draft.add)
        return {name: made[name] for name in (*report.HEADLINE, *PROBES.names()) if name in made}


def _add_translations(job: Job[EvaluateConfig], made: dict[str, Any], rows: int) -> None:
    """Write translations, if there are any, and add their figures to the report and its rows."""
    from stages.evaluation.fields import CHANGED
    from stages.evaluation.translations import write_translations

    translated = write_translations(job, [row["row"] for row in made["rows"]][:rows])
    if translated is None:
        return
    made["translation"], changed = translated
    _write(job, CHANGED, {"sentences": changed})
    # the last row, of a spalm model without neighbours, is not translated
    for row, figures in zip(made["rows"], made["translation"]["rows"], strict=False):
        row |= {name: figures[name] for name in ("bleu", "chrf")}


def _readings(config: EvaluateConfig, inputs: Inputs, execution: Execution) -> tuple[Reading, ...]:
    """The readings asked for, or the default readings of the model's method."""
    if config.memory is not None:
        return config.readings
    lacking = lacking_memory(inputs.artifacts)
    if lacking is not None:
        execution.reporter.warning(lacking)
    return parse_readings(default_memory(inputs.artifacts))


def _largest_amounts(job: Job[EvaluateConfig]) -> dict[str, int]:
    """The most neighbours and positions that could be read: the stored neighbours, all rows, the
    whole split.
    """
    stored = job.inputs["neighbors"].config["k"] if "neighbors" in job.inputs else None
    rows = job.inputs["datastore"].metrics["rows"] if "datastore" in job.inputs else 0
    if PAIRS in job.inputs:
        rows = job.inputs[PAIRS].metrics["splits"][PAIRS_SPLIT]["tokens"]
    length = job.inputs["tokens"].metrics["splits"][job.config.split]["tokens"]
    return {"k": rows if stored is None else stored, "size": length}


def _write(job: Job[EvaluateConfig], name: str, content: Mapping[str, Any]) -> None:
    job.draft.add(name).write_text(
        json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8"
    )
