import pytest

from stages.memory import READERS, SOURCES
from stages.memory.grammar import NAMED, OWNERS, SHARED, composition_name, parse_phrase, row_name
from stages.memory.spec import Reading, parse_readings


def test_sources_stand_in_one_order_and_values_stay_text():
    phrase = parse_phrase("long+local:size=050,lambda=.1")
    assert phrase.sources == ("local", "long")
    assert phrase.settings == {"size": "050", "lambda": ".1"}
    assert phrase.reader == "interpolate"


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_named_row_parses_and_keeps_its_name(name):
    readings = parse_readings((name,))
    assert composition_name([(reading.sources, reading.reader) for reading in readings]) == name
    if len(readings) == 1:
        assert readings[0].name == name


def test_a_row_without_a_name_is_called_by_its_sources():
    assert row_name(("local",), "interpolate") == "local"
    assert row_name(("local", "long", "external"), "joint") == "local+long+external (joint)"
    assert composition_name([(("long",), "interpolate"), (("external",), "interpolate")]) is None
    assert row_name(("external",), "joint") == "knn-lm (joint)"


def test_every_key_of_the_grammar_is_a_setting_and_the_other_way_round():
    fields = {field.alias or name for name, field in Reading.model_fields.items()}
    assert {*SHARED, *OWNERS, "sources"} == fields
    assert set(OWNERS.values()) <= {*SOURCES.names(), *READERS.names()}


def test_what_is_registered_exists():
    for registry in (SOURCES, READERS):
        assert all(callable(registry.load(name)) for name in registry.names())
