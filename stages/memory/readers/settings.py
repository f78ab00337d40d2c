"""Settings that every reader has. Free of torch."""

from typing import ClassVar

from stages.memory.hyperparameter import Choice, PolicyName, ReadingOptions


class ReaderSettings(ReadingOptions):
    """The keys that a reader adds to a reading: one, the weight of the memory, under the name that papers give it."""

    means: ClassVar[str] = ""
    """How the two distributions are combined, in a few words."""
    needs_scores: ClassVar[bool] = False
    """Whether it needs the vocabulary's scores as the model gives them, which only a first reading has."""
    temperatures: ClassVar[tuple[float, ...]] = ()
    """τ that `tune` chooses from where scores are compared as in training, in units of the model's own; empty: they
    are measured in a sample."""
    weight: Choice[float] | PolicyName | None = None
