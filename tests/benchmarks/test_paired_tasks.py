"""Paired differences of streams of tasks are those of the matrices, and their intervals those of the
formula.
"""

from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate_tasks import EvaluateTasks
from stages.tasks.config import EvaluateTasksConfig
from tests.benchmarks.paired_tasks import difference, scores_by_reading
from tests.stages.small_tasks import small_stream, stream_model


def test_the_difference_is_that_of_the_matrices_averages(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    tokens = small_stream(store, tmp_path / "tasks")
    matrices = []
    for method in ("seq", "multitask"):
        model = stream_model(store, tokens, method, epochs=4)
        config = EvaluateTasksConfig(examples=10)
        scored = make(EvaluateTasks(), config, {"source": model.reference}, store, Execution())
        matrices.append(scored.artifact)

    forgetful, learnt = [scores_by_reading(matrix)["none"] for matrix in matrices]
    averages = [100 * matrix.metrics["rows"][0]["average"] for matrix in matrices]
    assert averages[1] > averages[0]
    assert difference([forgetful], [learnt])["points"] == pytest.approx(
        averages[1] - averages[0], abs=0.01
    )


def test_documents_are_averaged_over_pairs_first_and_pairs_have_the_t_interval() -> None:
    before = {"news": np.zeros(4)}
    after = [{"news": np.array([1.0, 0, 0, 0])}, {"news": np.array([0.0, 1, 1, 0])}]
    result = difference([before, before], after)
    # Gains of the documents are 50, 50, 50 and 0 points.
    assert result["over_documents"] == pytest.approx(1.96 * (1875 / 4 / 4) ** 0.5, abs=0.01)
    assert result["by_pair"] == [25, 50] and result["points"] == 37.5
    assert result["over_pairs"] == pytest.approx(12.706 * 12.5, abs=0.1)
