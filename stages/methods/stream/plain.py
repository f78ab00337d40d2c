"""Sequential and multitask learning: plain steps; the order of the examples makes the difference."""

from stages.methods.stream.classifying import Classifying
from stages.methods.stream.config import TaskSettings


class Plain(Classifying[TaskSettings]):
    """Nothing but the loss."""
