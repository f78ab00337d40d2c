"""Fifty clients at once: every answer is right, and the server's memory does not grow."""

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.evaluate import Evaluate, EvaluateConfig
from tests.endurance.serving import loaded
from tests.stages.serving.conftest import READINGS


@pytest.mark.endurance
@pytest.mark.timeout(300)
def test_many_clients_leave_nothing_behind(index: Artifact) -> None:
    config, references = EvaluateConfig(memory=READINGS), {"source": index.reference}
    report = make(Evaluate(), config, references, index.store, Execution(device="cpu")).artifact
    load = loaded(report.reference, index.store.root, clients=50, seconds=120)
    assert not load.wrong
    assert load.statuses["200"] > 100 and set(load.statuses) <= {"200", "429", "left"}
    half = len(load.megabytes) // 2
    assert max(load.megabytes[half:]) < 1.1 * max(load.megabytes[:half])
