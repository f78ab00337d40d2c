"""What is said before the first step."""

import tracemalloc
from types import SimpleNamespace

import pytest

from stages.artifacts.stage import Inputs
from stages.artifacts.store import Store
from stages.models.config import parse_model
from stages.training.config import TrainConfig
from stages.training.warnings import (
    cost_of_vocabulary,
    draws_of_memory,
    more_blocks_than_usual,
    random_segments,
    statistics_of_padding,
    untrained_memory,
)
from tests.stages.small_store import small_tokens


@pytest.mark.parametrize("method", ["lm", "trime", "trime-long"])
def test_methods_that_learn_from_tokens_alone_draw_their_segments_silently(tmp_path, method):
    inputs = Inputs({"tokens": small_tokens(Store(tmp_path))})
    assert random_segments(TrainConfig(method=method), inputs) is None


def test_segments_of_trime_ext_are_random_unless_they_are_packed(tmp_path):
    tokens = small_tokens(Store(tmp_path))
    config = TrainConfig(method="trime-ext", segment_length=64)
    warning = random_segments(config, Inputs({"tokens": tokens}))
    assert "at random" in warning
    assert f"memlm pack-batches {tokens.reference} --segment-length 64" in warning
    assert random_segments(config, Inputs({"tokens": tokens, "batches": tokens})) is None


@pytest.mark.parametrize("attention", ["memorizing", "compressive", "infinity"])
@pytest.mark.parametrize("method", ["lm", "trime-long", "spalm", "trime", "trime-ext"])
def test_a_memory_that_training_never_fills_is_named(method, attention):
    def warning(**settings):
        model = {"backbone": "transformer-xl", "attention": {"name": attention, **settings}}
        return untrained_memory(TrainConfig(method=method, model=parse_model(model)))

    if method not in ("trime", "trime-ext"):
        assert warning() is None
        return
    assert f"method {method!r}" in warning() and f"attention {attention!r}" in warning()
    assert ("--long-length 0" in warning()) == (attention != "infinity")
    if attention != "infinity":
        assert warning(long_length=0) is None


def test_a_model_without_such_layers_trains_silently():
    assert (
        untrained_memory(
            TrainConfig(method="trime", model=parse_model({"backbone": "transformer-xl"}))
        )
        is None
    )


def test_the_cost_of_a_large_vocabulary_is_told(monkeypatch):
    settings = {"layers": 1, "width": 8, "heads": 2, "ffn_width": 16}
    model = parse_model(settings).sized(100, 16)
    assert cost_of_vocabulary(model) is None
    monkeypatch.setattr("stages.text.vocabulary_cost.MANY_TYPES", 99)
    warning = cost_of_vocabulary(model)
    assert all(figure in warning for figure in ("100 types", "0.0008 million", "12.8 kB"))
    assert "model.cutoffs" in warning
    untied = cost_of_vocabulary(model.model_copy(update={"tied": False}))
    assert "0.0016 million" in untied
    assert cost_of_vocabulary(model.model_copy(update={"cutoffs": (20,)})) is None


def test_memory_in_more_blocks_than_in_its_paper_is_named():
    def warning(**attention):
        model = {"backbone": "memorizing-transformer", "layers": 4, "attention": attention}
        return more_blocks_than_usual(parse_model(model))

    assert warning() is warning(layers=[1]) is None
    assert "2 of 4" in warning(layers=[1, 2]) and "[3]" in warning(layers=[1, 2])
    assert more_blocks_than_usual(parse_model({"backbone": "compressive-transformer"})) is None
    assert more_blocks_than_usual(parse_model({"backbone": "lstm"})) is None


def test_blocks_of_a_model_that_is_refused_for_its_size_are_not_listed() -> None:
    tracemalloc.start()
    try:
        more_blocks_than_usual(parse_model({"layers": 10**6}))
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("examples", "norm", "warned"),
    [("documents", "batch", True), ("documents", "layer", False), (None, "batch", False)],
)
def test_a_norm_over_a_batch_that_counts_padding_is_named(examples, norm, warned):
    tokens = SimpleNamespace(metrics={} if examples is None else {"examples": examples})
    layer = {"name": "product-keys", "sub_keys": 4, "neighbors": 2, "query_norm": norm}
    config = TrainConfig.model_validate({"method": "seq", "model": {"feed_forward": layer}})
    assert (statistics_of_padding(config, Inputs({"tokens": tokens})) is not None) == warned


@pytest.mark.parametrize("method", ["oml-er", "anml-er"])
def test_queries_that_are_never_of_the_stream_are_named(method):
    def warnings(**memory):
        sizes = {"segment_length": 64, "batch_tokens": 1024}
        settings = {"method": method, "memory": memory} | sizes
        return cautions(TrainConfig.model_validate(settings))

    (warning,) = warnings(every=64)
    assert "⌈(64 / 16 + 1) / (5 + 1)⌉ = 1" in warning and "more than 80" in warning
    assert len(warnings(every=80)) == 1
    assert warnings(every=81) == []
    assert warnings() == [], "the default"
    alone, part = warnings(every=1)
    assert "never one" in alone and "memory.draw=16" in part
    assert cautions(TrainConfig(method="replay")) == []


@pytest.mark.parametrize("method", ["a-gem", "replay", "meta-mbpa"])
def test_a_draw_of_less_than_a_document_is_named(method):
    def warnings(**memory):
        return cautions(TrainConfig.model_validate({"method": method, "memory": memory}))

    assert "memory.draw=" in " ".join(warnings(every=1))
    assert warnings(every=1, draw=4) == []
    assert warnings(every=2) == []
    assert warnings() == []


def cautions(config: TrainConfig) -> list[str]:
    return config.method_settings.cautions(config.batch_segments, config.accumulate)


def test_the_documents_that_will_be_drawn_are_told():
    tokens = SimpleNamespace(metrics={"splits": {"train": {"task_documents": [600, 600, 600]}}})
    sizes = {"segment_length": 64, "batch_tokens": 1024, "steps": 100}
    config = TrainConfig.model_validate({"method": "replay"} | sizes)
    told = draws_of_memory(config, {"tokens": tokens})
    assert "25 times" in told and "32 documents" in told and "800 in addition to the 1,600" in told
    assert draws_of_memory(TrainConfig(method="seq", steps=100), {"tokens": tokens}) is None
