"""Names of a report's numbers in charts and tables."""

from stages.retrieval.hyperparameters import hyperparameters

OTHERS = {"neighbors": "neighbours let in", "rows": "datastore size"}
"""Quantities of curves besides the amounts of readings."""


def symbol(name: str) -> str:
    """`τ`, `k`, `cache size`: for a table."""
    known = hyperparameters()
    return known[name].symbol if name in known else OTHERS.get(name, name)


def symbol_in_words(name: str) -> str:
    """`temperature τ`, `neighbours`, `cache size`: for an axis or a title."""
    known = hyperparameters()
    return known[name].words if name in known else OTHERS.get(name, name)
