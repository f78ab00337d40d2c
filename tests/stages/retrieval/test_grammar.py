import pytest

from stages.memory import READERS
from stages.retrieval.grammar import NAMED, OWNERS, SHARED, SOURCES, composition_name, parse_phrase, row_name
from stages.retrieval.reading import Reading, parse_readings


def test_sources_stand_in_one_order_and_values_stay_text():
    phrase = parse_phrase("long+local:size=050,lambda=.1")
    assert phrase.sources == ("local", "long")
    assert phrase.settings == {"size": "050", "lambda": ".1"}
    assert phrase.reader == "interpolate"


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_named_row_parses_and_keeps_its_name(name):
    readings = parse_readings((name,))
    assert composition_name([(reading.sources, reading.reader) for reading in readings], True) == name
    if len(readings) == 1:
        assert readings[0].name(trained=True) == name


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


def test_every_key_of_the_grammar_is_a_setting_and_the_other_way_round():
    fields = {field.alias or name for name, field in Reading.model_fields.items()}
    assert {*SHARED, *OWNERS, "sources"} == fields
    assert set(OWNERS.values()) <= {*SOURCES, *READERS.names()}


def test_what_is_registered_exists():
    assert all(callable(READERS.load(name)) for name in READERS.names())
