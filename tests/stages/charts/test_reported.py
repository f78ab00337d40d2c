"""Hyperparameters are called as papers call them."""

from stages.charts.reported import symbol, symbol_in_words


def test_a_parameter_has_its_symbol_and_its_words() -> None:
    names = ("temperature", "k", "lambda", "size")
    assert [symbol(name) for name in names] == ["τ", "k", "λ", "cache size"]
    assert [symbol_in_words(name) for name in names] == ["temperature τ", "neighbours read", "λ", "cache size"]


def test_a_parameter_of_somebody_else_keeps_its_name() -> None:
    assert symbol("depth") == symbol_in_words("depth") == "depth"
