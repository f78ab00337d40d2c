"""Adaptation: weights that learn from a text while it is scored (dynamic evaluation)."""

from stages.registry import Registry

HERE = "stages.adaptation"

UPDATE_RULES = Registry(
    "what learns",
    {"all": f"{HERE}.decay_to_prior:DecayToPrior", "lora": f"{HERE}.low_rank:LowRankAdam"},
)
"""Rules by the value of `what`; the code is an `UpdateRule`."""
