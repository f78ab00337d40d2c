"""Training for as long as a memory took."""

import json
from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore
from stages.encoding.datastore_config import DatastoreConfig
from stages.errors import UsageError
from stages.index import BuildIndex
from stages.search.config import IndexConfig
from stages.train import Train
from stages.training.config import TrainConfig
from stages.training.equal_time import memory_seconds
from tests.stages.slow_evaluation import evaluated
from tests.stages.small_store import small_model, small_tokens

SHORT = {"segment_length": 8, "batch_tokens": 16, "accumulate": 3}


@pytest.fixture(scope="module")
def report(store: Store) -> Artifact:
    """Of an index, with windows that overlap by half."""
    model = small_model(store, small_tokens(store))
    datastore = made(store, BuildDatastore(), DatastoreConfig(key="hidden"), source=model)
    index = made(store, BuildIndex(), IndexConfig(metric="ip"), source=datastore)
    return evaluated(store, index, "external:k=2,lambda=0.1", context=8, stride=4)


def made(store: Store, stage: Any, config: Any, **references: Artifact) -> Artifact:
    given = {role: artifact.reference for role, artifact in references.items()}
    return make(stage, config, given, store, Execution("cpu")).artifact


def test_the_time_is_that_of_the_report_and_of_its_memory(report: Artifact) -> None:
    index = report.input("index")
    parts = (report, index, index.input("datastore"))
    seconds = [json.loads((part.path / "manifest.json").read_text())["seconds"] for part in parts]
    assert memory_seconds(report) == pytest.approx(sum(seconds))


def test_as_many_updates_are_made_as_fit_into_it(store: Store, report: Artifact) -> None:
    """An update takes three times as long as scoring its tokens."""
    model = report.input("model")
    given = {"source": model.input("tokens"), "init_from": model, "time_of": report}
    trained = made(store, Train(), TrainConfig(**SHORT, valid_every=0), **given)
    scored = json.loads((report.path / "metrics.json").read_text())["rows"][0]
    # Each scored token is read in two windows.
    update = 3 * 16 * 3 / (2 * scored["tokens_per_second"])
    steps = trained.config["steps"]
    assert steps > 1
    assert steps * update <= memory_seconds(report) < (steps + 1) * update
    assert trained.input("time_of").reference == report.reference


@pytest.mark.parametrize("length", [{"steps": 3}, {"epochs": 1.0}])
def test_two_numbers_of_updates_are_refused(
    store: Store, report: Artifact, length: dict[str, float]
) -> None:
    tokens = report.input("tokens")
    with pytest.raises(UsageError, match="leave --steps and --epochs out"):
        made(store, Train(), TrainConfig(**SHORT, **length), source=tokens, time_of=report)
