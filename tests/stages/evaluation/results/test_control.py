"""The trigram of a model's training text, on the tokens that an evaluation scores."""

import json
from math import exp, log

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.results import control
from stages.evaluation.results.control import trigram_control
from tests.oracles.ngram import probability
from tests.stages.small_store import EOS, array, small_model, small_tokens


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    store = Store(tmp_path_factory.mktemp("store"))
    tokens = small_tokens(store)
    return {"model": small_model(store, tokens), "tokens": tokens}


def expected(tokens: Artifact, counted: slice = slice(None)) -> float:
    train, test = (array(tokens, "tokens.zarr", f"{split}/ids").tolist() for split in ("train", "test"))
    stream, size = [EOS, EOS, *test], tokens.metrics["vocabulary_size"]
    each = [log(probability(w, stream[n : n + 2], train, EOS, size)) for n, w in enumerate(test)]
    return exp(-sum(each[counted]) / len(each[counted]))


@pytest.mark.parametrize("at_once", [1, 5, 1 << 18])
def test_it_is_counted_in_train_and_reads_the_stream_before_each_token(read, at_once, monkeypatch):
    monkeypatch.setattr(control, "TOKENS_AT_ONCE", at_once)
    found = trigram_control(read, "test", "all", "none", None)
    assert found["perplexity"] == pytest.approx(expected(read["tokens"]), rel=1e-9)
    assert found["nll"] == pytest.approx(log(found["perplexity"]))
    assert (found["corpus"], found["split"]) == (read["tokens"].reference, "train")
    assert found["tokens"] == len(array(read["tokens"], "tokens.zarr", "train/ids"))


def test_new_text_is_scored_apart(read):
    outside = np.ones(len(array(read["tokens"], "tokens.zarr", "test/ids")), bool)
    outside[:3] = False
    found = trigram_control(read, "test", "all", "none", outside)
    assert found["perplexity_on_new_text"] == pytest.approx(expected(read["tokens"], slice(3, None)), rel=1e-9)
    assert found["perplexity"] == pytest.approx(expected(read["tokens"]), rel=1e-9)


def test_it_stands_in_the_report(read):
    store = read["model"].store
    report = make(
        Evaluate(), EvaluateConfig(memory=("none",)), {"source": read["model"].reference}, store, Execution()
    ).artifact
    found = json.loads(report.file("metrics.json").read_text())["trigram"]
    assert found["perplexity"] == trigram_control(read, "test", "all", "none", None)["perplexity"]


def test_it_is_left_out_where_it_says_nothing_or_costs_much(read, monkeypatch):
    assert trigram_control(read, "train", "all", "none", None) is None, "it knows the text"
    assert trigram_control(read, "test", "last-word", "none", None) is None
    assert trigram_control(read, "test", "all", "document", None) is None
    model = read["model"]
    manifest = model.manifest.model_copy(update={"outside_files": [["checkpoint", "0"]]})
    imported = Artifact(model.store, model.path, manifest)
    assert trigram_control({**read, "model": imported}, "test", "all", "none", None) is None
    monkeypatch.setattr(control, "MOST_TOKENS", 10)
    assert trigram_control(read, "test", "all", "none", None) is None
