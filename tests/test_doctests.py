"""The worked examples of kernels are true."""

import doctest
from importlib import import_module

import pytest

WORKED = [
    "memlm_cli.packages",
    "pipelines.options",
    "stages.charts.vega",
    "stages.evaluation.figures.seed_groups",
    "stages.retrieval.weights.coordinate_descent",
    "stages.examples.cutting",
    "stages.examples.orders",
    "stages.examples.windows",
    "stages.memory.entries",
    "stages.memory.in_batch.visible",
    "stages.memory.readers.interpolate",
    "stages.memory.readers.joint",
    "stages.models.cross_entropy",
    "stages.models.gate",
    "stages.models.layers.compressive",
    "stages.models.layers.hashed_ngrams",
    "stages.models.layers.infinity",
    "stages.models.layers.memorizing",
    "stages.models.layers.memsizer",
    "stages.models.layers.product_keys",
    "stages.models.layers.relative",
    "stages.models.layers.sinusoids",
    "stages.models.layers.softmax",
    "stages.pretrained.anatomy",
    "stages.retrieval.grammar",
    "stages.retrieval.hyperparameters",
    "stages.retrieval.read",
    "stages.retrieval.reading",
    "stages.search.automatic",
    "stages.text.vocabulary",
    "stages.training.resolve",
    "stages.web.rendering",
]


@pytest.mark.parametrize("name", WORKED)
def test_what_a_worked_example_shows_is_so(name: str) -> None:
    ended = doctest.testmod(import_module(name))
    assert ended.attempted > 0 and not ended.failed
