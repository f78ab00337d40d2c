"""The interface of a rule by which weights learn from a segment that was scored."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from stages.adaptation.settings import Dynamic, Numbers
from stages.models.language_model import LanguageModel

Statistics = Mapping[str, Tensor]
"""Root mean square of the gradient of each weight in training text, by the weight's name."""


class UpdateRule(ABC):
    """The weights of one model that learn, as they are at the moment."""

    needs_statistics: bool = False
    """Whether it reads gradients of training text."""

    def __init__(
        self, model: LanguageModel, settings: Dynamic, statistics: Statistics | None
    ) -> None:
        """Take a model as training left it.

        Args:
            model: its weights are changed in place.
            statistics: of its weights, for a rule that needs them.
        """
        self.model = model
        self.settings = settings

    @property
    @abstractmethod
    def learning(self) -> Sequence[nn.Parameter]:
        """The parameters whose gradients `update` takes, in their order."""

    @abstractmethod
    def begin(self, numbers: Numbers) -> None:
        """Put the weights back to those of training, and forget everything learned."""

    @abstractmethod
    def update(self, gradients: Sequence[Tensor | None]) -> None:
        """Learn from the gradients of a segment's mean loss; None: it does not depend on the
        weight.
        """

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Copies of everything learned, by name, from which `load` continues."""

    @abstractmethod
    def load(self, state: Mapping[str, Tensor], numbers: Numbers) -> None:
        """Continue from a state."""

    @classmethod
    @abstractmethod
    def state_numbers(cls, model: LanguageModel, settings: Dynamic) -> int:
        """Number of values in its state; the model may be without values."""
