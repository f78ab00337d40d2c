"""Stage evaluate-tasks: a model that learnt tasks -> matrix.

Scores the tests of all tasks with the weights after each. A shard is a range of one test, read with the weights after
one task, so a killed run loses one range at most.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, Inputs, Job, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.errors import ArtifactError
from stages.lineage.corpus import corpus_of, require_split
from stages.tasks.config import EvaluateTasksConfig
from stages.tasks.figures import stream_figures
from stages.tasks.plan import StreamPlan, TestRange, drawn, matrix, plan_stream
from stages.tasks.schema import MATRIX

if TYPE_CHECKING:
    from stages.examples.documents import Documents
    from stages.tasks.reader import StreamReader


@dataclass(frozen=True)
class Work:
    """The model and the documents of each task."""

    plan: StreamPlan
    reader: "StreamReader"
    documents: "dict[str, Documents]"


class EvaluateTasks(ShardedStage[EvaluateTasksConfig, StreamPlan, Work, TestRange]):
    """Scores a stream; roles: `model`, `tokens`."""

    name = "evaluate-tasks"
    kind = "matrix"
    Config = EvaluateTasksConfig
    schema = MATRIX

    def inputs(self, config: EvaluateTasksConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        model = store.get(references["source"], "model")
        if model.config["model"].get("head") is None:
            raise ArtifactError(
                f"{model.reference} has learnt no tasks: {model.advise('evaluate', model.reference)} scores its text."
            )
        tokens = corpus_of(model, {}, store)
        require_split(tokens, config.split)
        plan_stream(config, model, tokens)
        return Inputs({"model": model, "tokens": tokens})

    def device(self, execution: Execution) -> str:
        from stages.models.devices import device_name

        return device_name(execution.device)

    def memory(self, config: EvaluateTasksConfig, inputs: Inputs) -> int | None:
        return 4 * int(inputs["model"].metrics["parameters"])

    def plan(self, job: Job[EvaluateTasksConfig]) -> StreamPlan:
        return plan_stream(job.config, job.inputs["model"], job.inputs["tokens"])

    def open(self, job: ShardJob[EvaluateTasksConfig], plan: StreamPlan) -> Work:
        from stages.models.devices import resolve_device
        from stages.tasks.reader import StreamReader, documents_read

        model = job.inputs["model"]
        reader = StreamReader(model, resolve_device(job.execution.device))
        return Work(plan, reader, documents_read(model, job.inputs["tokens"], job.config.split))

    def run_shard(self, job: ShardJob[EvaluateTasksConfig], work: Work, shard: TestRange) -> ShardOutput:
        documents = work.documents[work.plan.order[shard.task]]
        which = drawn(documents.count, work.plan.counts[shard.task])[shard.start : shard.stop]
        work.reader.go_to(shard.after)
        answers = work.reader.answers(documents, which)
        right = int((answers == documents.labels[documents.chosen[which]]).sum())
        return ShardOutput(job.folder, {"correct": right, "answers": answers.tolist()})

    def finish(self, job: Job[EvaluateTasksConfig], plan: StreamPlan) -> dict[str, Any]:
        from stages.charts.figure import write_figures
        from stages.charts.stream import stream_charts

        records = {shard.key: job.draft.record(shard.key) for shard in plan.shards}
        scores = matrix(plan, {key: record["correct"] for key, record in records.items()})
        made = {
            "tasks": list(plan.order),
            "method": job.inputs["model"].config["method"],
            "after": list(plan.places),
            "matrix": scores.tolist(),
            "examples": list(plan.counts),
            **stream_figures(scores, plan.places),
        }
        answers = [
            {"after": shard.after, "task": plan.order[shard.task], "answers": records[shard.key]["answers"]}
            for shard in plan.shards
        ]
        for name, content in {"metrics.json": made, "answers.json": answers}.items():
            job.draft.add(name).write_text(json.dumps(content, allow_nan=False) + "\n", "utf-8")
        write_figures(stream_charts(made), job.draft.add)
        return made
