"""The work of evaluate-tasks: tests of all tasks, with the weights saved after each task.

A shard is a range of one test, with the weights after one task. So a killed run loses one range at
most.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, ShardedWork, ShardJob
from stages.charts.figure import write_figures
from stages.charts.training import stream_charts
from stages.examples.documents import Documents
from stages.examples.form import answers_file, candidates_file
from stages.lineage.corpus import tokenizer_of
from stages.methods.config import TRAIN
from stages.models.computing import resolve_device
from stages.numbers import duration
from stages.tasks.answers import Accepted, read_accepted, read_candidates, score_matrices, scores_of
from stages.tasks.config import EvaluateTasksConfig, Score
from stages.tasks.figures import PERPLEXITY, domain_figures, stream_figures
from stages.tasks.kept import answers_in_words, documents_kept, scores_text
from stages.tasks.plan import (
    StreamPlan,
    TestRange,
    matrices,
    perplexities,
    plan_stream,
    sample_documents,
)
from stages.tasks.reader import (
    StreamReader,
    all_documents,
    documents_by_task,
    open_keys,
    open_memory,
)


@dataclass(frozen=True)
class TaskReader:
    """The model, and the documents that it is tested on."""

    plan: StreamPlan
    reader: StreamReader
    documents: dict[str, dict[str, Documents]]
    """Documents by split and task."""
    candidates: Mapping[str, list[list[int] | None]]
    """Candidate labels of each document, by split; empty if every label is a candidate."""
    accepted: Mapping[str, list[Accepted]]
    """Accepted answers to each document, by split; empty if answers are labels."""


class EvaluateTasksWork(ShardedWork[EvaluateTasksConfig, StreamPlan, TaskReader, TestRange]):
    """Scores a stream of tasks."""

    def plan(self, job: Job[EvaluateTasksConfig]) -> StreamPlan:
        plan = plan_stream(job.config, job.inputs["model"], job.inputs["tokens"])
        for price in prices(job.config, plan, job.inputs["model"], job.inputs["tokens"]):
            job.reporter.info(price)
        for row in job.config.rows:
            splits = {job.config.split, *([job.config.tune_split] if len(row.readings) > 1 else [])}
            reading = row.readings[0]
            reads_itself = reading.documents is not None and not reading.hides_example
            if reads_itself and TRAIN in splits:
                job.reporter.warning(
                    f"{row.spelled} adapts to documents of {TRAIN} that it answers: scores are too good"
                )
        return plan

    def open(self, job: ShardJob[EvaluateTasksConfig], plan: StreamPlan) -> TaskReader:
        model = job.inputs["model"]
        tokens = job.inputs["tokens"]
        device = resolve_device(job.execution.device)
        length = int(model.config["segment_length"])
        keys = open_keys(job.inputs["episodes"], device) if "episodes" in job.inputs else None
        words = answers_in_words(model, tokens)
        decode = tokenizer_of(tokens).huggingface().decode if words else None
        reader = StreamReader(model, device, open_memory(model, tokens, length), keys, decode)
        splits = plan.splits(job.config)
        return TaskReader(
            plan,
            reader,
            {
                split: documents_by_task(all_documents(model, tokens, split, length), tokens)
                for split in splits
            },
            {
                split: read_candidates(tokens.file(candidates_file(split)))
                for split in splits
                if job.config.candidates
            },
            {split: read_accepted(tokens.file(answers_file(split))) for split in splits if words},
        )

    def run_shard(
        self, job: ShardJob[EvaluateTasksConfig], resources: TaskReader, shard: TestRange
    ) -> ShardOutput:
        split = job.config.split
        count = resources.plan.counts[shard.task]
        if shard.choice is not None:
            split = job.config.tune_split
            count = resources.plan.tuned
        task = resources.plan.order[shard.task]
        documents = resources.documents[split][task]
        which = sample_documents(documents.count, count)[shard.start : shard.stop]
        resources.reader.go_to(shard.after)
        if scores_text(job.inputs["model"]):
            nats, tokens = resources.reader.nats(documents, which)
            return ShardOutput(job.folder, {"nats": nats, "tokens": tokens})
        choice = (
            chosen(resources.plan, shard.row, job.record) if shard.choice is None else shard.choice
        )
        numbers = documents.chosen[which]
        reading = job.config.rows[shard.row].readings[choice]
        among = (
            [resources.candidates[split][number] for number in numbers.tolist()]
            if resources.candidates
            else None
        )
        answers = resources.reader.answers(reading, documents, which, among, inside=split == TRAIN)
        if resources.accepted:
            # A range may cut a dialogue, so goals cannot be scored here: settings are then chosen
            # by F1.
            by: Score = (
                "exact" if job.config.scores(resources.plan.order)[task] == "exact" else "f1"
            )
            accepted = [resources.accepted[split][number] for number in numbers.tolist()]
            right = scores_of(by, list(map(str, answers)), accepted)
        else:
            labels = documents.labels[numbers].tolist()
            right = [float(answer == label) for answer, label in zip(answers, labels, strict=True)]
        return ShardOutput(job.folder, {"correct": sum(right), "answers": list(answers)})

    def finish(self, job: Job[EvaluateTasksConfig], plan: StreamPlan) -> dict[str, Any]:
        model = job.inputs["model"]
        tokens = job.inputs["tokens"]
        records = {shard.key: job.draft.record(shard.key) for shard in plan.tests}
        text = scores_text(model)
        words = answers_in_words(model, tokens)
        figures = domain_figures if text else stream_figures
        score = job.config.scores(plan.order)
        if text:
            parts = (
                {key: record[name] for key, record in records.items()}
                for name in ("nats", "tokens")
            )
            matrix = perplexities(plan, *parts)
        elif words:
            matrix = score_matrices(
                score, _answers(plan, records), _accepted_by_task(tokens, job.config.split, plan)
            )
        else:
            matrix = matrices(plan, {key: record["correct"] for key, record in records.items()})
        rows = list[dict[str, Any]]()
        for number, (row, row_matrix) in enumerate(zip(job.config.rows, matrix, strict=True)):
            rows.append({"row": row.spelled})
            if len(row.readings) > 1:
                rows[-1]["chosen"] = row.readings[chosen(plan, number, job.draft.record)].spelled
            rows[-1] |= {"matrix": row_matrix.tolist(), **figures(row_matrix, plan.places)}
        made = {
            "tasks": list(plan.order),
            "method": model.config["method"],
            "after": list(plan.places),
            "examples": list(plan.counts),
            **({"score": PERPLEXITY} if text else {}),
            **({"scores": list(score.values())} if words else {}),
            **({"candidates": True} if job.config.candidates else {}),
            "rows": rows,
        }
        answers = [
            {
                "row": job.config.memory[shard.row],
                "after": shard.after,
                "task": plan.order[shard.task],
                "answers": records[shard.key]["answers"],
            }
            for shard in plan.tests
            if not text
        ]
        for name, content in {"metrics.json": made, "answers.json": answers}.items():
            job.draft.add(name).write_text(json.dumps(content, allow_nan=False) + "\n", "utf-8")
        write_figures(stream_charts(made), job.draft.add)
        return made


def prices(
    config: EvaluateTasksConfig, plan: StreamPlan, model: Artifact, tokens: Artifact
) -> list[str]:
    """The cost of each reading: documents learnt for each example, and the time that training took
    for that number.

    A reading that does not learn for each example has no price.
    """
    train = tokens.metrics["splits"][TRAIN]
    prices = list[str]()
    examples = len(plan.places) * sum(plan.counts)
    length = min(train["tokens"] / train["documents"], model.config["segment_length"])
    speed = float(model.metrics["tokens_per_second"])
    for reading in config.readings:
        if each := reading.learnt(documents_kept(model, tokens)):
            time = (
                f"; training took {duration(examples * each * length / speed)} for as many"
                if speed
                else ""
            )
            prices.append(
                f"{reading.spelled} learns {each:,} documents for each of {examples:,} examples{time}"
            )
    return prices


def chosen(plan: StreamPlan, row: int, record: Callable[[str], Mapping[str, Any]]) -> int:
    """Number of the reading with the most correct answers on the tuning split; the first one wins a
    tie.
    """
    right = [sum(record(key)["correct"] for key in keys) for keys in plan.tries(row).values()]
    return right.index(max(right)) if right else 0


def _answers(
    plan: StreamPlan, records: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[int, int, str], list[Any]]:
    """Answers to the test of each task, in order, by (row, index in `plan.places`, task)."""
    answers_of: dict[tuple[int, int, str], list[Any]] = {}
    for shard in plan.tests:
        key = shard.row, plan.places.index(shard.after), plan.order[shard.task]
        answers_of.setdefault(key, []).extend(records[shard.key]["answers"])
    return answers_of


def _accepted_by_task(tokens: Artifact, split: str, plan: StreamPlan) -> dict[str, list[Any]]:
    """The accepted answers to the scored examples of each task's test."""
    accepted = read_accepted(tokens.file(answers_file(split)))
    numbers = tokens.zarr("tokens.zarr")[f"{split}/tasks"][:]
    names: list[str] = tokens.metrics["tasks"]
    found = {}
    for name, count in zip(plan.order, plan.counts, strict=True):
        (documents,) = (numbers == names.index(name)).nonzero()
        found[name] = [
            accepted[number]
            for number in documents[sample_documents(len(documents), count)].tolist()
        ]
    return found
