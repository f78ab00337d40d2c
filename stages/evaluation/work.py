"""Work of the stage evaluate: phases over splits, and a report of what they found.

Each row of memory has a policy, which sets the weight of the memory. A policy asks for passes over
the tuning split. Each range of a pass is a shard, and stores the observations of the policies. A
last shard records their choice. Then the reported split is scored, range by range.
"""

from dataclasses import replace
from typing import Any

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, ShardedWork, ShardJob
from stages.charts.figure import write_figures
from stages.charts.report import report_charts
from stages.diagnostics import PROBES
from stages.diagnostics.options import probe_charts
from stages.encoding.carried_state import StateStore
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.decoding import why_no_bleu
from stages.evaluation.figures import report
from stages.evaluation.files import write_json
from stages.evaluation.learning import Learning
from stages.evaluation.metrics_file import metrics_of
from stages.evaluation.opening import ReadingSettings, open_range_reader
from stages.evaluation.passes import Part
from stages.evaluation.phases import PHASES, Resources
from stages.evaluation.plan import Plan, plan_evaluation, probes_of, rows_of_report
from stages.evaluation.row_weights import RowWeights
from stages.evaluation.translations import add_translations, bleu_figures
from stages.models.computing import resolve_device, tune_allocator
from stages.models.config import model_of
from stages.reports.remarks.table import REPORT, remarks_on
from stages.retrieval.registries import SOURCES
from stages.retrieval.sources.source import Needs
from stages.retrieval.weights.policy import open_policies
from stages.search.open import tell_of_large


class EvaluateWork(ShardedWork[EvaluateConfig, Plan, Resources, Part]):
    """Scoring of a split, phase by phase."""

    def plan(self, job: Job[EvaluateConfig]) -> Plan:
        if "index" in job.inputs and "neighbors" not in job.inputs:
            tell_of_large(job.inputs["index"].file("index.faiss"), job.reporter)
        reason = why_no_bleu(job.config, model_of(job.inputs["model"]))
        if reason is not None:
            job.reporter.warning(f"no BLEU is computed: {reason}")
        return plan_evaluation(job)

    def open(self, job: ShardJob[EvaluateConfig], plan: Plan) -> Resources:
        config = job.config
        tune_allocator()
        settings = ReadingSettings(
            read=job.inputs.artifacts,
            readings=config.readings,
            windows=config.windows,
            by_document=config.reset == "document",
            precision=config.precision,
            options=config.probe_options,
            split=config.split,
            exclude=config.exclude or "self",
            above=config.above,
            open_book=config.open_book,
        )
        device = resolve_device(job.execution.device)
        reader, rows = open_range_reader(settings, device, last_words=plan.last_words)
        policies = open_policies(rows, bool(plan.tuning))
        needs = Needs.of_all(policy.needs for policy in policies)
        reader = replace(reader, needs=reader.needs | needs)
        weights = RowWeights(job.folder, job.record, rows, plan.tuning)
        states = StateStore(job.folder, reader.split_reader.device)
        learning = None
        if config.dynamic is not None:
            learning = Learning(config.dynamic, reader, job.folder, job.record)
        return Resources(plan, reader, weights, states, learning)

    def run_shard(
        self, job: ShardJob[EvaluateConfig], resources: Resources, shard: Part
    ) -> ShardOutput:
        output = ShardOutput(job.folder)
        PHASES[shard.task].run(job, resources, shard, output)
        return output

    def finish(self, job: Job[EvaluateConfig], plan: Plan) -> dict[str, Any]:
        shards = plan.scoring.parts
        rows = rows_of_report(job)
        weights = RowWeights(job.folder, job.draft.record, rows, plan.tuning)
        if plan.scores is not None:
            plan.scores.finish(job.draft, [plan.scoring.number(shard) for shard in shards])

        records = [job.draft.record(shard.key) for shard in shards]
        probes = probes_of(job)
        observations = {}
        shown = {}
        for name, probe in probes.items():
            observations[name] = [record["probes"][name] for record in records]
            shown[name] = probe.metrics(observations[name])
        metrics = metrics_of(job, plan, rows, weights, records, probes, shown)
        metrics["tuning"] = weights.tuning(_largest_amounts(job)) | bleu_figures(job, plan, weights)
        add_translations(job, metrics, 1 + len(rows))
        metrics["remarks"] = [remark.code for remark in remarks_on(REPORT, metrics)]

        files: dict[str, Any] = {}
        for name, probe in probes.items():
            files |= probe.files(observations[name])
        contents = {"metrics.json": metrics, **files, **weights.files()}
        for name, content in contents.items():
            write_json(job, name, content)

        charts = report_charts(metrics)
        for of_probe in probe_charts(metrics, files).values():
            charts += of_probe
        write_figures(charts, job.draft.add)
        names = (*report.HEADLINE, *PROBES.names())
        return {name: metrics[name] for name in names if name in metrics}


def _largest_amounts(job: Job[EvaluateConfig]) -> dict[str, int]:
    """The most that could be read of each amount: neighbours, positions, as sources say."""
    amounts: dict[str, int] = {}
    for name in SOURCES.names():
        declared = SOURCES.settings(name)
        amounts |= declared.amounts(job.inputs.artifacts, job.config.split)
    return amounts
