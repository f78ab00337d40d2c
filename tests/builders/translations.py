"""Evaluations of a model of made translations."""

import json
from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from tests.stages.pretrained.tiny import saved_translator
from tests.stages.small_pairs import imported_translator, pair_tokens
from tests.stages.small_text import built_index


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("translations")
    store = Store(folder / "store")
    saved_translator(folder / "pretrained", "marian")
    tokens = pair_tokens(store, folder / "pretrained")
    return built_index(store, imported_translator(store, folder / "pretrained", tokens))


def evaluated(source: Artifact, **settings: Any) -> Artifact:
    references = {"source": source.reference}
    return make(
        Evaluate(), EvaluateConfig(**settings), references, source.store, Execution(device="cpu")
    ).artifact


def lines(report: Artifact) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in report.file("translations.jsonl").read_text("utf-8").strip().split("\n")
    ]
