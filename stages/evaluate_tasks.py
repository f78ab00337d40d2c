"""Stage evaluate-tasks: a model that learnt tasks -> matrix.

Scores the tests of all tasks with the weights after each, and with what readings find in memory. A shard is a range of
one test, read with the weights after one task, so a killed run loses one range at most.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Inputs, Job, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.examples.form import answers_file, candidates_file
from stages.lineage.corpus import corpus_of, require_split, tokenizer_of
from stages.methods.config import TRAIN
from stages.models.devices import resolve_device
from stages.numbers import duration
from stages.tasks.answers import read_accepted, read_candidates, score_matrices, scores_of
from stages.tasks.config import GOAL, Adaptation, Coarse, EvaluateTasksConfig, Neighbors, Score
from stages.tasks.figures import MATRIX, PERPLEXITY, domain_figures, stream_figures
from stages.tasks.plan import StreamPlan, TestRange, drawn, matrices, perplexities, plan_stream

if TYPE_CHECKING:
    from stages.examples.documents import Documents
    from stages.tasks.reader import StreamReader


@dataclass(frozen=True)
class Work:
    """The model and the documents that it is asked about."""

    plan: StreamPlan
    reader: "StreamReader"
    documents: "dict[str, dict[str, Documents]]"
    """Documents by split and task."""


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
        plan = plan_stream(config, model, tokens)
        _require_scores(config, model, tokens)
        if config.candidates:
            _require_candidates(model, tokens, {config.split, *([config.tune_split] if plan.tuned else [])})
        read = {"model": model, "tokens": tokens}
        if any(reading.reads_keys for reading in config.readings):
            read["episodes"] = _fitting_episodes(references.get("episodes"), tokens, store)
        elif references.get("episodes") is not None:
            raise UsageError("--episodes: no --memory looks for the nearest documents; add mbpa or episodic.")
        return Inputs(read)

    def plan(self, job: Job[EvaluateTasksConfig]) -> StreamPlan:
        plan = plan_stream(job.config, job.inputs["model"], job.inputs["tokens"])
        for price in prices(job.config, plan, job.inputs["model"], job.inputs["tokens"]):
            job.reporter.info(price)
        return plan

    def open(self, job: ShardJob[EvaluateTasksConfig], plan: StreamPlan) -> Work:
        from stages.tasks.reader import StreamReader, all_documents, documents_by_task, open_keys, open_memory

        model, tokens, device = job.inputs["model"], job.inputs["tokens"], resolve_device(job.execution.device)
        length = int(model.config["segment_length"])
        keys = open_keys(job.inputs["episodes"], device) if "episodes" in job.inputs else None
        decode = tokenizer_of(tokens).huggingface().decode if answers_in_words(model, tokens) else None
        reader = StreamReader(model, device, open_memory(model, tokens, length), keys, decode)
        splits = {job.config.split, *([job.config.tune_split] if plan.tuned else [])}
        documents = {
            split: documents_by_task(all_documents(model, tokens, split, length), tokens) for split in sorted(splits)
        }
        return Work(plan, reader, documents)

    def run_shard(self, job: ShardJob[EvaluateTasksConfig], work: Work, shard: TestRange) -> ShardOutput:
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
        among = None
        if job.config.candidates:
            every = read_candidates(job.inputs["tokens"].file(candidates_file(split)))
            among = [every[number] for number in numbers.tolist()]
        answers = work.reader.answers(reading, documents, which, among)
        if answers_in_words(job.inputs["model"], job.inputs["tokens"]):
            accepted = read_accepted(job.inputs["tokens"].file(answers_file(split)))
            # A range may cut a dialogue: where goals are scored, numbers are chosen by F1.
            by: Score = "exact" if job.config.scores(work.plan.order)[task] == "exact" else "f1"
            right = scores_of(by, list(map(str, answers)), [accepted[number] for number in numbers.tolist()])
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
            parts = ({key: record[name] for key, record in records.items()} for name in ("nats", "tokens"))
            matrix = perplexities(plan, *parts)
        elif words:
            matrix = score_matrices(score, _said(plan, records), _accepted_by_task(tokens, job.config.split, plan))
        else:
            matrix = matrices(plan, {key: record["correct"] for key, record in records.items()})
        rows = [_row(job, plan, number) for number in range(plan.rows)]
        made = {
            "tasks": list(plan.order),
            "method": model.config["method"],
            "after": list(plan.places),
            "examples": list(plan.counts),
            **({"score": PERPLEXITY} if text else {}),
            **({"scores": list(score.values())} if words else {}),
            **({"candidates": True} if job.config.candidates else {}),
            "rows": [
                {**row, "matrix": own.tolist(), **figures(own, plan.places)}
                for row, own in zip(rows, matrix, strict=True)
            ],
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


def prices(config: EvaluateTasksConfig, plan: StreamPlan, model: Artifact, tokens: Artifact) -> list[str]:
    """The documents that each reading learns for an example, for all of them, and how long training took for as many.

    A reading that learns nothing, or once for all, has no price.
    """
    train, found = tokens.metrics["splits"][TRAIN], list[str]()
    examples = len(plan.places) * sum(plan.counts)
    length = min(train["tokens"] / train["documents"], model.config["segment_length"])
    speed = float(model.metrics["tokens_per_second"])
    for reading in config.readings:
        if isinstance(reading, Adaptation) and reading.adapts and reading.steps:
            each = min(reading.k, train["documents"]) * reading.steps
            time = f"; training took {duration(examples * each * length / speed)} for as many" if speed else ""
            found.append(f"{reading.spelled} learns {each:,} documents for each of {examples:,} examples{time}")
    return found


def _row(job: Job[EvaluateTasksConfig], plan: StreamPlan, number: int) -> dict[str, Any]:
    """The name of a row, and the reading that was chosen for it, where there are several."""
    row = job.config.rows[number]
    if len(row.readings) == 1:
        return {"row": row.spelled}
    return {"row": row.spelled, "chosen": row.readings[chosen(plan, number, job.draft.record)].spelled}


def chosen(plan: StreamPlan, row: int, record: Callable[[str], Mapping[str, Any]]) -> int:
    """The reading of a row that has most right on the tune split, by number; of equal ones the first."""
    right = [sum(record(key)["correct"] for key in keys) for keys in plan.tries(row).values()]
    return right.index(max(right)) if right else 0


def _said(plan: StreamPlan, records: Mapping[str, Mapping[str, Any]]) -> dict[tuple[int, int, str], list[Any]]:
    """The answers of each row, after each place (by number), to the test of each task, range behind range."""
    found: dict[tuple[int, int, str], list[Any]] = {}
    for shard in plan.tests:
        key = shard.row, plan.places.index(shard.after), plan.order[shard.task]
        found.setdefault(key, []).extend(records[shard.key]["answers"])
    return found


def _accepted_by_task(tokens: Artifact, split: str, plan: StreamPlan) -> dict[str, list[Any]]:
    """The accepted answers to the examples of each task's test that are scored."""
    accepted, numbers = read_accepted(tokens.file(answers_file(split))), tokens.zarr("tokens.zarr")[f"{split}/tasks"][:]
    names: list[str] = tokens.metrics["tasks"]
    found = {}
    for name, count in zip(plan.order, plan.counts, strict=True):
        (own,) = (numbers == names.index(name)).nonzero()
        found[name] = [accepted[number] for number in own[drawn(len(own), count)].tolist()]
    return found


def answers_in_words(model: Artifact, tokens: Artifact) -> bool:
    """Whether answers are texts, of which several may be accepted, instead of labels."""
    return bool(tokens.metrics.get("records", "labels") in ("spans", "answers")) and not scores_text(model)


def _require_scores(config: EvaluateTasksConfig, model: Artifact, tokens: Artifact) -> None:
    """Raises: UsageError for scores of answers in words where there are none, or of dialogues that are not whole."""
    if not answers_in_words(model, tokens):
        if config.score:
            raise UsageError(f"--score: {model.reference} gives no answers in words: leave it out.")
        return
    scores = config.scores(tokens.metrics["tasks"])
    if any(isinstance(reading, Neighbors) for reading in config.readings):
        raise UsageError("--memory: episodic interpolates labels, and these answers are in words: mbpa adapts to them.")
    if GOAL not in scores.values():
        return
    if config.examples is not None:
        raise UsageError("--score goal: it is of whole dialogues: leave --examples out.")
    accepted = read_accepted(tokens.file(answers_file(config.split)))
    for number, one in zip(tokens.zarr("tokens.zarr")[f"{config.split}/tasks"][:].tolist(), accepted, strict=True):
        name = tokens.metrics["tasks"][number]
        if scores[name] == GOAL and one.dialogue is None:
            raise UsageError(f"--score goal: records of task {name} name no dialogue: score it with f1 or exact.")


def _require_candidates(model: Artifact, tokens: Artifact, splits: set[str]) -> None:
    """Raises: UsageError for a model that chooses no labels; ArtifactError for a split without candidates."""
    if model.config["model"]["head"]["name"] in ("language", "span"):
        raise UsageError(f"--candidates: {model.reference} chooses none of the labels: leave it out.")
    for split in sorted(splits):
        if candidates_file(split) not in tokens.manifest.files:
            raise ArtifactError(
                f"{tokens.reference} has no candidates in {split!r}: name their field with --candidates of tokenize."
            )


def scores_text(model: Artifact) -> bool:
    """Whether a model scores the text of domains instead of labels."""
    head = model.config["model"]["head"]
    return bool(head["name"] == "language" and not head["answers"] and head.get("longest") is None)


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
