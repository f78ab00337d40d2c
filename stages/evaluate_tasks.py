"""Stage evaluate-tasks: a model that learnt a stream of tasks -> matrix.

Scores the tests of all tasks with the weights saved after each task, and with each reading of
memory; `stages.tasks.work` does it.
"""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs, Stage
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.examples.form import answers_file, candidates_file
from stages.lineage.corpus import corpus_of, require_split
from stages.methods.config import TRAIN
from stages.tasks.answers import read_accepted
from stages.tasks.config import GOAL, EvaluateTasksConfig
from stages.tasks.figures import MATRIX
from stages.tasks.kept import answers_in_words, documents_kept
from stages.tasks.plan import plan_stream

__all__ = ["EvaluateTasks", "EvaluateTasksConfig"]


class EvaluateTasks(Stage[EvaluateTasksConfig]):
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
        for reading in config.readings:
            if (reason := reading.refusal(head["name"])) is not None:
                raise UsageError(f"--memory: {reading.name} of {model.reference} {reason}.")
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


def _require_documents(config: EvaluateTasksConfig, num_documents: int) -> None:
    """Raises: UsageError for a reading that asks for more documents than memory has; the default k
    always passes.
    """
    for reading in (reading for row in config.rows for reading in row.readings):
        default = type(reading)(name=reading.name).documents
        if reading.documents not in (None, default) and reading.documents > num_documents:
            raise UsageError(
                f"--memory {reading.spelled}: memory has {num_documents:,} documents, so k is at most {num_documents:,}."
            )


def _require_scores(config: EvaluateTasksConfig, model: Artifact, tokens: Artifact) -> None:
    """Raises: UsageError for a score of texts if answers are labels, or of goals if dialogues are
    not whole.
    """
    if not answers_in_words(model, tokens):
        if config.score:
            raise UsageError(f"--score: {model.reference} gives no answers in words: leave it out.")
        return
    scores = config.scores(tokens.metrics["tasks"])
    if GOAL not in scores.values():
        return
    if config.examples is not None:
        raise UsageError("--score goal: it is of whole dialogues: leave --examples out.")
    accepted = read_accepted(tokens.file(answers_file(config.split)))
    for number, score in zip(
        tokens.zarr("tokens.zarr")[f"{config.split}/tasks"][:].tolist(), accepted, strict=True
    ):
        name = tokens.metrics["tasks"][number]
        if scores[name] == GOAL and score.dialogue is None:
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
