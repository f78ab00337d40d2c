import pytest

from stages.memory.hyperparameter import ReadingOptions
from stages.memory.readers import READERS
from stages.retrieval.grammar import NAMED, composition_name, parse_phrase, parse_readings, reading_name, row_name
from stages.retrieval.sources import SOURCES


def test_sources_stand_in_one_order_and_values_stay_text():
    phrase = parse_phrase("long+local:size=050,lambda=.1")
    assert phrase.sources == ("local", "long")
    assert phrase.settings == {"size": "050", "lambda": ".1"}
    assert phrase.reader == "interpolate"


@pytest.mark.parametrize("name", sorted({*NAMED} - {"knn-mt"}))
def test_a_named_row_parses_and_keeps_its_name(name):
    readings = parse_readings((name,))
    assert composition_name([(reading.sources, reading.reader) for reading in readings], True) == name
    if len(readings) == 1:
        assert reading_name(readings[0], trained=True) == name


def test_a_row_without_a_name_is_called_by_its_sources():
    assert row_name(("local",), "interpolate", True) == "local"
    assert row_name(("local", "long", "external"), "joint", True) == "local+long+external (joint)"
    assert composition_name([(("long",), "interpolate"), (("external",), "interpolate")], True) is None
    assert row_name(("external",), "joint", True) == "knn-lm (joint)"


def test_joint_readings_of_a_plainly_trained_model_are_called_by_their_sources():
    assert row_name(("local",), "joint", False) == "local (joint)"
    assert row_name(("local", "long"), "joint", False) == "local+long (joint)"
    assert row_name(("external",), "interpolate", False) == "knn-lm"
    kinds = [(reading.sources, reading.reader) for reading in parse_readings(("trime-ext",))]
    assert composition_name(kinds, False) is None


@pytest.mark.parametrize("registry", [SOURCES, READERS], ids=["sources", "readers"])
def test_what_is_registered_exists(registry):
    assert all(
        callable(registry.load(name)) and issubclass(registry.settings(name), ReadingOptions)
        for name in registry.names()
    )
