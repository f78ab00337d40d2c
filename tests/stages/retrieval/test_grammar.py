import pytest

from stages.memory.hyperparameter import ReadingOptions
from stages.memory.readers import READERS
from stages.retrieval.grammar import (
    NAMED,
    composition_name,
    parse_reading,
    parse_readings,
    reading_name,
)
from stages.retrieval.registries import SOURCES


def named(spec: str, trained: bool) -> str:
    return reading_name(parse_reading(spec), trained)


def test_sources_stand_in_one_order():
    reading = parse_reading("long+local:size=050,lambda=.1")
    assert (reading.sources, reading.reader) == (("local", "long"), "interpolate")
    assert reading.spelled == "local+long:lambda=0.1,size=50"


@pytest.mark.parametrize("name", sorted({*NAMED} - {"knn-mt"}))
def test_a_named_row_parses_and_keeps_its_name(name):
    readings = parse_readings((name,))
    assert (
        composition_name([(reading.sources, reading.reader) for reading in readings], True) == name
    )
    if len(readings) == 1:
        assert reading_name(readings[0], trained=True) == name


def test_a_row_without_a_name_is_called_by_its_sources():
    assert named("local:lambda=0.5", True) == "local"
    assert named("long+exact-stream:size=9,reader=joint", True) == "long+exact-stream (joint)"
    assert (
        composition_name([(("long",), "interpolate"), (("external",), "interpolate")], True) is None
    )
    assert named("external:reader=joint", True) == "knn-lm (joint)"


def test_joint_readings_of_a_plainly_trained_model_are_called_by_their_sources():
    assert named("local:reader=joint", False) == "local (joint)"
    assert named("local+long:size=9,reader=joint", False) == "local+long (joint)"
    assert named("external:lambda=0.5", False) == "knn-lm"
    kinds = [(reading.sources, reading.reader) for reading in parse_readings(("trime-ext",))]
    assert composition_name(kinds, False) is None


@pytest.mark.parametrize("registry", [SOURCES, READERS], ids=["sources", "readers"])
def test_what_is_registered_exists(registry):
    assert all(
        callable(registry.load(name)) and issubclass(registry.settings(name), ReadingOptions)
        for name in registry.names()
    )
