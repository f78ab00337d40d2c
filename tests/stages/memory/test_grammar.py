import pytest

from stages.errors import UsageError
from stages.memory import READERS, SOURCES
from stages.memory.grammar import NAMED, OWNERS, SHARED, parse_phrase, row_name
from stages.memory.spec import Reading, parse_reading


def test_sources_stand_in_one_order_and_values_stay_text():
    phrase = parse_phrase("long+local:size=050,lambda=.1")
    assert phrase.sources == ("local", "long")
    assert phrase.settings == {"size": "050", "lambda": ".1"}
    assert phrase.reader == "interpolate"


@pytest.mark.parametrize("name", sorted(NAMED.keys() - {"trime-ext"}))
def test_a_named_row_parses_and_keeps_its_name(name):
    assert parse_reading(name).name == name


def test_a_named_row_of_sources_that_are_not_joined_yet_is_refused():
    with pytest.raises(UsageError, match="--memory trime-ext: this version does not join 'external'"):
        parse_phrase("trime-ext")


def test_a_row_without_a_name_is_called_by_its_sources():
    assert row_name(("local",), "interpolate") == "local"
    assert row_name(("local", "long", "external"), "joint") == "trime-ext"
    assert row_name(("external",), "joint") == "knn-lm (joint)"


def test_every_key_of_the_grammar_is_a_setting_and_the_other_way_round():
    fields = {field.alias or name for name, field in Reading.model_fields.items()}
    assert {*SHARED, *OWNERS, "sources"} == fields
    assert set(OWNERS.values()) <= {*SOURCES.names(), *READERS.names()}


def test_what_is_registered_exists():
    for registry in (SOURCES, READERS):
        assert all(callable(registry.load(name)) for name in registry.names())
