"""Evaluations of models of tasks."""

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate_tasks import EvaluateTasks
from stages.tasks.config import EvaluateTasksConfig


def scored(
    store: Store, model: Artifact, episodes: Artifact | None = None, **settings: object
) -> Artifact:
    config = EvaluateTasksConfig.model_validate(settings)
    references = {"source": model.reference} | (
        {} if episodes is None else {"episodes": episodes.reference}
    )
    return make(EvaluateTasks(), config, references, store, Execution()).artifact
