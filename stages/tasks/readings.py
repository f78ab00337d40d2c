"""Settings of the readings of memory, each a row of `evaluate-tasks --memory`. Free of torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stages.memory.hyperparameter import Count, Hyperparameter, ReadingOptions

Positive = Annotated[float, Field(gt=0)]
MAX_STEPS = 10**6
"""Maximum number of steps of an adaptation."""
MAX_RATE = 1e9
"""A number that float32 can hold even after a product: larger ones overflow to infinity, or raise
an error.
"""
AdaptedPart = Literal["all", "head"]


class Reading(ReadingOptions):
    """A way in which a model reads the documents of memory; a subclass has its numbers as fields.

    A field with a `Hyperparameter` takes `tune` where that has a grid.
    """

    reads_keys: ClassVar[bool] = False
    """Whether it searches for the nearest documents, so that it needs their keys."""
    adapts: ClassVar[bool] = False
    """Whether it adapts weights for each example, which takes long."""
    copies: ClassVar[int] = 0
    """Additional numbers for each weight of the model, in memory."""
    hides_example: ClassVar[bool] = True
    """Whether an example that is itself in memory is answered as if it were not."""

    name: str

    @property
    def documents(self) -> int | None:
        """Documents of memory that it asks for; None: no number of them."""
        return None

    def learnt(self, memory: int) -> int:
        """Documents that are learnt to answer one example, with so many documents in memory."""
        return 0

    def refusal(self, head: str) -> str | None:
        """Reason, as part of a message, why it reads no model with the head of this name; None: it
        reads them.
        """
        return None

    @property
    def spelled(self) -> str:
        """The reading as a user would type it: `mbpa:k=8`; settings with their defaults are left
        out.
        """
        changed = [
            f"{key}={_spelled(getattr(self, key))}"
            for key, field in type(self).model_fields.items()
            if key != "name" and getattr(self, key) != field.default
        ]
        return ":".join([self.name, *([",".join(changed)] if changed else [])])


def _spelled(value: float | str) -> str:
    """The shortest exact spelling of a number; a word as it is."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


class NoReading(Reading):
    """The model alone."""

    hides_example: ClassVar[bool] = False

    name: Literal["none"] = "none"


class Neighbors(Reading):
    """p(y) = λ p_mem(y) + (1 - λ) p_model(y); p_mem by exp(-d² / τ) of the k nearest documents with
    the label y.
    """

    reads_keys: ClassVar[bool] = True

    name: Literal["episodic"] = "episodic"
    k: Count = 32
    temperature: Annotated[Positive, Hyperparameter("τ", grid=(0.1, 1.0, 10.0, 100.0))] = 10.0
    """τ, of squared Euclidean distances."""
    weight: Annotated[
        float, Field(ge=0, le=1), Hyperparameter("λ", grid=(0.1, 0.25, 0.5, 0.75))
    ] = 0.5
    """λ."""

    @property
    def documents(self) -> int:
        return self.k

    def refusal(self, head: str) -> str | None:
        if head == "span":
            return "interpolates labels, and these answers are in words: mbpa adapts to them"
        return None


class Adaptation(Reading):
    """L steps of gradient descent on documents of memory, for each example from the model's own
    weights.
    """

    adapts: ClassVar[bool] = True
    copies: ClassVar[int] = 2

    k: Count = 32
    """Documents, K."""
    steps: Annotated[
        int, Field(ge=0, le=MAX_STEPS), Hyperparameter("L", axis="steps", grid=(5, 15, 30))
    ] = 30
    """L, steps for each example; coarse takes them once for all."""
    lr: Annotated[
        float, Field(gt=0, le=MAX_RATE), Hyperparameter("η", grid=(0.001, 0.005, 0.02, 0.1))
    ] = 1e-3
    """η, their learning rate."""
    anchor: Annotated[float, Field(ge=0, le=MAX_RATE), Hyperparameter("κ")] = 1e-3
    """κ, of the squared distance from the weights before."""
    part: AdaptedPart = "all"
    """Weights that adapt: all, or the head alone, as of OML-ER. The head alone is much faster."""

    @property
    def documents(self) -> int:
        return self.k

    def learnt(self, memory: int) -> int:
        return min(self.k, memory) * self.steps if self.adapts else 0

    def refusal(self, head: str) -> str | None:
        if head == "matcher" and self.part == "head":
            return "reads prototypes instead of its head's weights: leave part=head out"
        return None


class Mbpa(Adaptation):
    """Adapts to the k nearest documents."""

    reads_keys: ClassVar[bool] = True

    name: Literal["mbpa"] = "mbpa"
    weight: Literal["equal", "distance"] = "equal"
    """Weights of the documents: all alike, as of MbPA++, or by 1 / (ε + d²), as of MbPA."""


class RandomAdaptation(Adaptation):
    """Adapts to k documents drawn at random: the control of `mbpa`."""

    name: Literal["random"] = "random"


class Coarse(Adaptation):
    """Adapts once for all examples, each step to k freshly drawn documents, as in Meta-MbPA and
    OML-ER.
    """

    adapts: ClassVar[bool] = False
    hides_example: ClassVar[bool] = False

    name: Literal["coarse"] = "coarse"
