"""Stage evaluate-tasks: a model that learnt tasks -> matrix.

Scores the tests of all tasks with the weights after each, and with what readings find in memory. A shard is a range of
one test, read with the weights after one task, so a killed run loses one range at most.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Inputs, Job, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.lineage.corpus import corpus_of, require_split
from stages.methods.config import TRAIN
from stages.tasks.config import Coarse, EvaluateTasksConfig
from stages.tasks.figures import MATRIX, PERPLEXITY, domain_figures, stream_figures
from stages.tasks.plan import StreamPlan, TestRange, drawn, matrices, perplexities, plan_stream

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
    """Scores a stream; roles: `model`, `tokens`, and `episodes` where a reading looks for the nearest documents."""

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
        if model.config["model"]["head"]["name"] == "language" and config.memory != ("none",):
            raise UsageError(
                f"--memory: {model.reference} answers in words, and reads no memory of labels: leave it out."
            )
        if model.config["model"]["head"]["name"] == "matcher" and any(
            isinstance(reading, Coarse) and reading.part == "head" for reading in config.readings
        ):
            raise UsageError(
                f"--memory: {model.reference} reads prototypes instead of its head's weights: leave part=head out."
            )
        tokens = corpus_of(model, {}, store)
        require_split(tokens, config.split)
        plan_stream(config, model, tokens)
        read = {"model": model, "tokens": tokens}
        if any(reading.reads_keys for reading in config.readings):
            read["episodes"] = _fitting_episodes(references.get("episodes"), tokens, store)
        elif references.get("episodes") is not None:
            raise UsageError("--episodes: no --memory looks for the nearest documents; add mbpa or episodic.")
        return Inputs(read)

    def plan(self, job: Job[EvaluateTasksConfig]) -> StreamPlan:
        return plan_stream(job.config, job.inputs["model"], job.inputs["tokens"])

    def open(self, job: ShardJob[EvaluateTasksConfig], plan: StreamPlan) -> Work:
        from stages.models.devices import resolve_device
        from stages.tasks.reader import StreamReader, all_documents, documents_by_task, open_keys, open_memory

        model, tokens, device = job.inputs["model"], job.inputs["tokens"], resolve_device(job.execution.device)
        length = int(model.config["segment_length"])
        keys = open_keys(job.inputs["episodes"], device) if "episodes" in job.inputs else None
        reader = StreamReader(model, device, open_memory(model, tokens, length), keys)
        return Work(plan, reader, documents_by_task(all_documents(model, tokens, job.config.split, length), tokens))

    def run_shard(self, job: ShardJob[EvaluateTasksConfig], work: Work, shard: TestRange) -> ShardOutput:
        documents = work.documents[work.plan.order[shard.task]]
        which = drawn(documents.count, work.plan.counts[shard.task])[shard.start : shard.stop]
        work.reader.go_to(shard.after)
        if scores_text(job.inputs["model"]):
            nats, tokens = work.reader.nats(documents, which)
            return ShardOutput(job.folder, {"nats": nats, "tokens": tokens})
        answers = work.reader.answers(job.config.readings[shard.row], documents, which)
        right = int((answers == documents.labels[documents.chosen[which]]).sum())
        return ShardOutput(job.folder, {"correct": right, "answers": answers.tolist()})

    def finish(self, job: Job[EvaluateTasksConfig], plan: StreamPlan) -> dict[str, Any]:
        from stages.charts.figure import write_figures
        from stages.charts.training import stream_charts

        records = {shard.key: job.draft.record(shard.key) for shard in plan.shards}
        text = scores_text(job.inputs["model"])
        figures = domain_figures if text else stream_figures
        if text:
            parts = ({key: record[name] for key, record in records.items()} for name in ("nats", "tokens"))
            scores = perplexities(plan, *parts)
        else:
            scores = matrices(plan, {key: record["correct"] for key, record in records.items()})
        made = {
            "tasks": list(plan.order),
            "method": job.inputs["model"].config["method"],
            "after": list(plan.places),
            "examples": list(plan.counts),
            **({"score": PERPLEXITY} if text else {}),
            "rows": [
                {"row": row, "matrix": own.tolist(), **figures(own, plan.places)}
                for row, own in zip(job.config.memory, scores, strict=True)
            ],
        }
        answers = [
            {
                "row": job.config.memory[shard.row],
                "after": shard.after,
                "task": plan.order[shard.task],
                "answers": records[shard.key]["answers"],
            }
            for shard in plan.shards
            if not text
        ]
        for name, content in {"metrics.json": made, "answers.json": answers}.items():
            job.draft.add(name).write_text(json.dumps(content, allow_nan=False) + "\n", "utf-8")
        write_figures(stream_charts(made), job.draft.add)
        return made


def scores_text(model: Artifact) -> bool:
    """Whether a model scores the text of domains instead of labels."""
    head = model.config["model"]["head"]
    return bool(head["name"] == "language" and not head["answers"])


def _fitting_episodes(reference: str | None, tokens: Artifact, store: Store) -> Artifact:
    """Raises: UsageError if none are named; ArtifactError if they are those of other documents."""
    if reference is None:
        making = tokens.advise("build-episodes", "ENCODER", "--tokens", tokens.reference)
        raise UsageError(f"--memory looks for the nearest documents: name their keys with --episodes ({making}).")
    episodes = store.get(reference, "episodes")
    if episodes.input("corpus").record != tokens.record or episodes.config["split"] != TRAIN:
        raise ArtifactError(
            f"{episodes.reference} has keys of {episodes.config['split']} of {episodes.input('corpus').reference}, but "
            f"the model has learnt {TRAIN} of {tokens.reference}."
        )
    return episodes
