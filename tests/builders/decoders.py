"""Evaluations of a model beside a memory decoder."""

from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from tests.stages.small_store import array


def evaluated(store: Store, model: Artifact, *memory: str, **settings: Any) -> Artifact:
    reporter = settings.pop("reporter", None)
    config = EvaluateConfig.model_validate(
        {"memory": memory, "save_token_scores": True, "precision": "fp32"} | settings
    )
    execution = Execution(device="cpu") if reporter is None else Execution("cpu", reporter=reporter)
    return make(Evaluate(), config, {"source": model.reference}, store, execution).artifact


def log_p(report: Artifact, name: str = "logp") -> np.ndarray:
    return array(report, "scores.zarr", name).astype(np.float64)
