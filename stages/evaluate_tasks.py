"""Stage evaluate-tasks: a model that learnt a stream of tasks -> matrix.

Scores the tests of all tasks with the weights saved after each task, and with each reading of
memory. A shard is a range of one test, with the weights after one task. So a killed run loses one
range at most.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safetensors.numpy import load_file

from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Inputs, Job, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.examples.form import answers_file, candidates_file
from stages.lineage.corpus import corpus_of, require_split, tokenizer_of
from stages.methods.config import KEPT, TRAIN
from stages.models.devices import resolve_device
from stages.numbers import duration
from stages.tasks.answers import Accepted, read_accepted, read_candidates, score_matrices, scores_of
from stages.tasks.config import GOAL, Adaptation, Coarse, EvaluateTasksConfig, Neighbors, Score
from stages.tasks.figures import MATRIX, PERPLEXITY, domain_figures, stream_figures
from stages.tasks.plan import StreamPlan, TestRange, drawn, matrices, perplexities, plan_stream

if TYPE_CHECKING:
    from stages.examples.documents import Documents
    from stages.tasks.reader import StreamReader


@dataclass(frozen=True)
class Work:
    """The model, and the documents that it is tested on."""

    plan: StreamPlan
    reader: "StreamReader"
    documents: "dict[str, dict[str, Documents]]"
    """Documents by split and task."""
    candidates: Mapping[str, list[list[int] | None]]
    """Candidate labels of each document, by split; empty if every label is a candidate."""
    accepted: Mapping[str, list[Accepted]]
    """Accepted answers to each document, by split; empty if answers are labels."""


class EvaluateTasks(ShardedStage[EvaluateTasksConfig, StreamPlan, Work, TestRange]):
    """Scores a stream of tasks.

    Roles: `model`, `tokens`, and `episodes` if a reading searches for the nearest documents.
    """

    name = "evaluate-tasks"
    kind = "matrix"
    Config = EvaluateTasksConfig
    schema = MATRIX

    def inputs(
        self, config: EvaluateTasksConfig, references: Mapping[str, Any], store: Store
    ) -> Inputs:
        model = store.get(references["source"], "model")
        head = model.config["model"].get("head")
        if head is None:
            raise ArtifactError(
                f"{model.reference} has learnt no tasks: {model.advise('evaluate', model.reference)} scores its text."
            )
        if head["name"] == "language" and config.memory != ("none",):
            raise UsageError(
                f"--memory: {model.reference} answers in words, and reads no memory of labels: leave it out."
            )
        if head["name"] == "matcher" and any(
            isinstance(one, Coarse) and one.part == "head" for one in config.readings
        ):
            raise UsageError(
                f"--memory: {model.reference} reads prototypes instead of its head's weights: leave part=head out."
            )
        tokens = corpus_of(model, {}, store)
        require_split(tokens, config.split)
        _require_documents(config, documents_kept(model, tokens))
        plan = plan_stream(config, model, tokens)
        _require_scores(config, model, tokens)
        if config.candidates:
            _require_candidates(model, tokens, plan.splits(config))
        read = {"model": model, "tokens": tokens}
        if any(reading.reads_keys for reading in config.readings):
            read["episodes"] = _fitting_episodes(references.get("episodes"), tokens, store)
        elif references.get("episodes") is not None:
            raise UsageError(
                "--episodes: no --memory looks for the nearest documents; add mbpa or episodic."
            )
        return Inputs(read)

    def plan(self, job: Job[EvaluateTasksConfig]) -> StreamPlan:
        plan = plan_stream(job.config, job.inputs["model"], job.inputs["tokens"])
        for price in prices(job.config, plan, job.inputs["model"], job.inputs["tokens"]):
            job.reporter.info(price)
        for row in job.config.rows:
            splits = {job.config.split, *([job.config.tune_split] if len(row.readings) > 1 else [])}
            if isinstance(row.readings[0], Coarse) and TRAIN in splits:
                job.reporter.warning(
                    f"{row.spelled} adapts to documents of {TRAIN} that it answers: scores are too good"
                )
        return plan

    def open(self, job: ShardJob[EvaluateTasksConfig], plan: StreamPlan) -> Work:
        from stages.tasks.reader import (
            StreamReader,
            all_documents,
            documents_by_task,
            open_keys,
            open_memory,
        )

        model, tokens, device = (
            job.inputs["model"],
            job.inputs["tokens"],
            resolve_device(job.execution.device),
        )
        length = int(model.config["segment_length"])
        keys = open_keys(job.inputs["episodes"], device) if "episodes" in job.inputs else None
        words = answers_in_words(model, tokens)
        decode = tokenizer_of(tokens).huggingface().decode if words else None
        reader = StreamReader(model, device, open_memory(model, tokens, length), keys, decode)
        splits = plan.splits(job.config)
        return Work(
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
        self, job: ShardJob[EvaluateTasksConfig], work: Work, shard: TestRange
    ) -> ShardOutput:
        split, count = job.config.split, work.plan.counts[shard.task]
        if shard.choice is not None:
            split, count = job.config.tune_split, work.plan.tuned
        task = work.plan.order[shard.task]
        documents = work.documents[split][task]
        which = drawn(documents.count, count)[shard.start : shard.stop]
        work.reader.go_to(shard.after)
        if scores_text(job.inputs["model"]):
            nats, tokens = work.reader.nats(documents, which)
            return ShardOutput(job.folder, {"nats": nats, "tokens": tokens})
        choice = chosen(work.plan, shard.row, job.record) if shard.choice is None else shard.choice
        numbers, reading = documents.chosen[which], job.config.rows[shard.row].readings[choice]
        among = (
            [work.candidates[split][number] for number in numbers.tolist()]
            if work.candidates
            else None
        )
        answers = work.reader.answers(reading, documents, which, among, inside=split == TRAIN)
        if work.accepted:
            # A range may cut a dialogue, so goals cannot be scored here: settings are then chosen
            # by F1.
            by: Score = "exact" if job.config.scores(work.plan.order)[task] == "exact" else "f1"
            accepted = [work.accepted[split][number] for number in numbers.tolist()]
            right = scores_of(by, list(map(str, answers)), accepted)
        else:
            labels = documents.labels[numbers].tolist()
            right = [float(said == label) for said, label in zip(answers, labels, strict=True)]
        return ShardOutput(job.folder, {"correct": sum(right), "answers": list(answers)})

    def finish(self, job: Job[EvaluateTasksConfig], plan: StreamPlan) -> dict[str, Any]:
        from stages.charts.figure import write_figures
        from stages.charts.training import stream_charts

        model, tokens = job.inputs["model"], job.inputs["tokens"]
        records = {shard.key: job.draft.record(shard.key) for shard in plan.tests}
        text, words = scores_text(model), answers_in_words(model, tokens)
        figures, score = domain_figures if text else stream_figures, job.config.scores(plan.order)
        if text:
            parts = (
                {key: record[name] for key, record in records.items()}
                for name in ("nats", "tokens")
            )
            matrix = perplexities(plan, *parts)
        elif words:
            matrix = score_matrices(
                score, _said(plan, records), _accepted_by_task(tokens, job.config.split, plan)
            )
        else:
            matrix = matrices(plan, {key: record["correct"] for key, record in records.items()})
        rows = list[dict[str, Any]]()
        for number, (row, own) in enumerate(zip(job.config.rows, matrix, strict=True)):
            rows.append({"row": row.spelled})
            if len(row.readings) > 1:
                rows[-1]["chosen"] = row.readings[chosen(plan, number, job.draft.record)].spelled
            rows[-1] |= {"matrix": own.tolist(), **figures(own, plan.places)}
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
    train, found = tokens.metrics["splits"][TRAIN], list[str]()
    examples = len(plan.places) * sum(plan.counts)
    length = min(train["tokens"] / train["documents"], model.config["segment_length"])
    speed = float(model.metrics["tokens_per_second"])
    for reading in config.readings:
        if isinstance(reading, Adaptation) and reading.adapts and reading.steps:
            each = min(reading.k, documents_kept(model, tokens)) * reading.steps
            time = (
                f"; training took {duration(examples * each * length / speed)} for as many"
                if speed
                else ""
            )
            found.append(
                f"{reading.spelled} learns {each:,} documents for each of {examples:,} examples{time}"
            )
    return found


def documents_kept(model: Artifact, tokens: Artifact) -> int:
    """Number of documents in memory after the last task: the documents that the method kept, or all
    training ones.
    """
    if KEPT in model.manifest.files:
        return len(load_file(model.file(KEPT))["rows"])
    return int(tokens.metrics["splits"][TRAIN]["documents"])


def _require_documents(config: EvaluateTasksConfig, kept: int) -> None:
    """Raises: UsageError for a reading that asks for more documents than memory has; the default k
    always passes.
    """
    for reading in (reading for row in config.rows for reading in row.readings):
        if (
            isinstance(reading, Adaptation | Neighbors)
            and reading.k > kept
            and reading.k != type(reading).model_fields["k"].default
        ):
            raise UsageError(
                f"--memory {reading.spelled}: memory has {kept:,} documents, so k is at most {kept:,}."
            )


def chosen(plan: StreamPlan, row: int, record: Callable[[str], Mapping[str, Any]]) -> int:
    """Number of the reading with the most correct answers on the tuning split; the first one wins a
    tie.
    """
    right = [sum(record(key)["correct"] for key in keys) for keys in plan.tries(row).values()]
    return right.index(max(right)) if right else 0


def _said(
    plan: StreamPlan, records: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[int, int, str], list[Any]]:
    """Answers to the test of each task, in order, by (row, index in `plan.places`, task)."""
    found: dict[tuple[int, int, str], list[Any]] = {}
    for shard in plan.tests:
        key = shard.row, plan.places.index(shard.after), plan.order[shard.task]
        found.setdefault(key, []).extend(records[shard.key]["answers"])
    return found


def _accepted_by_task(tokens: Artifact, split: str, plan: StreamPlan) -> dict[str, list[Any]]:
    """The accepted answers to the scored examples of each task's test."""
    accepted, numbers = (
        read_accepted(tokens.file(answers_file(split))),
        tokens.zarr("tokens.zarr")[f"{split}/tasks"][:],
    )
    names: list[str] = tokens.metrics["tasks"]
    found = {}
    for name, count in zip(plan.order, plan.counts, strict=True):
        (own,) = (numbers == names.index(name)).nonzero()
        found[name] = [accepted[number] for number in own[drawn(len(own), count)].tolist()]
    return found


def answers_in_words(model: Artifact, tokens: Artifact) -> bool:
    """Whether answers are texts instead of labels; several texts may be accepted."""
    return bool(
        tokens.metrics.get("records", "labels") in ("spans", "answers")
    ) and not scores_text(model)


def _require_scores(config: EvaluateTasksConfig, model: Artifact, tokens: Artifact) -> None:
    """Raises: UsageError for a score of texts if answers are labels, or of goals if dialogues are
    not whole.
    """
    if not answers_in_words(model, tokens):
        if config.score:
            raise UsageError(f"--score: {model.reference} gives no answers in words: leave it out.")
        return
    scores = config.scores(tokens.metrics["tasks"])
    if any(isinstance(reading, Neighbors) for reading in config.readings):
        raise UsageError(
            "--memory: episodic interpolates labels, and these answers are in words: mbpa adapts to them."
        )
    if GOAL not in scores.values():
        return
    if config.examples is not None:
        raise UsageError("--score goal: it is of whole dialogues: leave --examples out.")
    accepted = read_accepted(tokens.file(answers_file(config.split)))
    for number, one in zip(
        tokens.zarr("tokens.zarr")[f"{config.split}/tasks"][:].tolist(), accepted, strict=True
    ):
        name = tokens.metrics["tasks"][number]
        if scores[name] == GOAL and one.dialogue is None:
            raise UsageError(
                f"--score goal: records of task {name} name no dialogue: score it with f1 or exact."
            )


def _require_candidates(model: Artifact, tokens: Artifact, splits: list[str]) -> None:
    """Raises: UsageError if the model does not choose among labels; ArtifactError if a split has no
    candidates.
    """
    if model.config["model"]["head"]["name"] in ("language", "span"):
        raise UsageError(
            f"--candidates: {model.reference} chooses none of the labels: leave it out."
        )
    for split in splits:
        if candidates_file(split) not in tokens.manifest.files:
            raise ArtifactError(
                f"{tokens.reference} has no candidates in {split!r}: name their field with --candidates of tokenize."
            )


def scores_text(model: Artifact) -> bool:
    """Whether a model is scored by the perplexity of text instead of by answers."""
    head = model.config["model"]["head"]
    return bool(head["name"] == "language" and not head["answers"] and head.get("longest") is None)


def _fitting_episodes(reference: str | None, tokens: Artifact, store: Store) -> Artifact:
    """Episodes of the documents that the model has learnt.

    Raises: UsageError if none are named; ArtifactError if they are of other documents.
    """
    if reference is None:
        making = tokens.advise("build-episodes", "ENCODER", "--tokens", tokens.reference)
        raise UsageError(
            f"--memory looks for the nearest documents: name their keys with --episodes ({making})."
        )
    episodes = store.get(reference, "episodes")
    if episodes.input("corpus").record != tokens.record or episodes.config["split"] != TRAIN:
        raise ArtifactError(
            f"{episodes.reference} has keys of {episodes.config['split']} of {episodes.input('corpus').reference}, but "
            f"the model has learnt {TRAIN} of {tokens.reference}."
        )
    return episodes
