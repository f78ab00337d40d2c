"""Records of the figures of a row."""

import pytest

from stages.reports.fields import FIELDS
from stages.reports.measures import MEASURES, Measure, measured


@pytest.mark.parametrize(
    ("value", "name", "shown"),
    [
        (145.137, "perplexity", "145.14"),
        (1234.5, "word_perplexity", "1,234"),
        (3e8, "perplexity", "3e+08"),
        (1.40768, "bits_per_character", "1.4077"),
        (0.793, "accuracy", "79.3%"),
        (3464.6, "tokens_per_second", "3,465"),
        (99.6, "tokens_per_second", "100"),
    ],
)
def test_figures_of_merit_have_the_decimals_of_their_kind(
    value: float, name: str, shown: str
) -> None:
    assert measured(value, name) == shown


def test_every_measure_of_the_package_that_a_report_holds_is_explained() -> None:
    elsewhere = {"counting", "perplexity_on_new_text", "counting_on_new_text", "bleu", "chrf"}
    assert {measure.name for measure in MEASURES.all_measures()} - elsewhere <= set(FIELDS)


def test_a_measure_explains_itself_in_a_sentence() -> None:
    measure = Measure("gap", "distance between both", "nats", "lower", header="the gap")
    assert measure.explanation == "The gap: distance between both (nats); lower is better."
    assert Measure("gap", "distance").explanation == "Gap: distance."
