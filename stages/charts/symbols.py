"""Hyperparameters of a reading as the papers write them."""

PARAMETERS = {
    **{"size": ("cache size", ""), "window": ("window", ""), "k": ("neighbours", "k")},
    **{"temperature": ("temperature", "τ"), "theta": ("", "θ"), "lambda": ("", "λ"), "alpha": ("", "α")},
    **{"neighbors": ("neighbours in the gate", ""), "rows": ("datastore size", "")},
}
"""Name in a report -> words and symbol; either may lack. In the order in which tables tell them."""


def symbol(name: str) -> str:
    """`τ`, `k`, `cache size`: for a table."""
    words, sign = PARAMETERS.get(name, (name, ""))
    return sign or words


def symbol_in_words(name: str) -> str:
    """`temperature τ`, `neighbours k`, `cache size`: for an axis or a title."""
    words, sign = PARAMETERS.get(name, (name, ""))
    return f"{words} {sign}".strip()
