"""Settings of the methods whose models write text: LAMOL and ELLE. Free of torch."""

from math import prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from stages.errors import UsageError
from stages.methods.config import Share
from stages.methods.stream.config import (
    MOST_ATTEMPTS,
    MOST_STEPS,
    OptimizerState,
    Positive,
    TaskSettings,
)
from stages.methods.stream.word_answers import with_task_tokens, writing_model
from stages.models.config import BackboneConfig
from stages.models.head_settings import LanguageSettings
from stages.text.config import Records

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact


class LamolConfig(TaskSettings):
    """A language model that answers, and writes examples of the tasks before.

    Source: Sun et al. 2020 (arXiv:1909.03329).
    """

    learns_from: ClassVar[frozenset[Records]] = frozenset({"labels", "spans", "answers"})
    scores_tokens: ClassVar[bool] = True

    method: Literal["lamol"] = "lamol"
    gamma: Share = 0.2
    """γ: samples that a task is learnt with, as a share of its examples."""
    samples: Literal["gen", "task", "real"] = "task"
    """Samples begin with one token for all tasks (`gen`) or one for each (`task`). `real`: examples
    of the tasks before instead, the bound of both."""
    lm_weight: Annotated[float, Field(ge=0)] = 0.25
    """λ, weight of the loss of the whole text; without it, and without samples, it is `seq` in
    words.
    """
    optimizer: OptimizerState = "kept"
    """The optimizer's state at the beginning of a task: that of the task before, or, as in the
    paper, new.
    """
    ans_weight: Annotated[float, Field(gt=0)] = 5.0
    """Weight of `<ans>` among the tokens of the whole text (in the authors' code alone)."""
    top_k: Positive = 20
    """Tokens that a sample draws from."""
    resample: Annotated[int, Field(ge=0, le=MOST_ATTEMPTS)] = 3
    """Times that a sample is written again where it is no example (in the paper 0: a large model
    hardly ever fails).
    """

    @property
    def renews_optimizer(self) -> bool:
        return self.optimizer == "new"

    def extend_model(self, model: BackboneConfig, tokens: "Artifact") -> BackboneConfig:
        return writing_model(model, tokens, asks=self.require_records(tokens) != "labels")


class ElleConfig(TaskSettings):
    """A language model that grows before a domain, recovers on memory, and learns beside memory;
    labels are not read.

    Source: Qin et al. 2022 (ELLE, arXiv:2203.06311).
    """

    learns_from: ClassVar[frozenset[Records]] = frozenset({"labels", "spans", "answers", "text"})
    scores_tokens: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    method: Literal["elle"] = "elle"
    wider: tuple[Positive, ...] = (2,)
    """Factors of the width before the second domain, the third, and so on; 1 where none is given.
    """
    deeper: tuple[Positive, ...] = (2,)
    """Factors of the depth, likewise (in the paper it grows four times, by less)."""
    noise: Annotated[float, Field(ge=0)] = 0.01
    """Deviation of the noise on weights that read the copies."""
    recovery: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 50
    """Batches of memory that are learnt before each domain but the first (in the paper 5,000)."""
    recovery_batch: Positive = 16
    """Documents of such a batch."""
    mixed: Share = 0.1
    """Documents of memory in a batch, as a share of those of the domain."""
    kept: Annotated[float, Field(gt=0, le=1)] = 0.06
    """Share of the documents of a domain that memory keeps."""
    prompt: bool = True
    """Whether a token of its domain begins each document, in training and at test."""

    def times(self, place: int) -> tuple[int, int]:
        """Factors of the width and the depth before the domain at a place, from 0."""
        wider, deeper = (
            dict(enumerate(times, 1)).get(place, 1) for times in (self.wider, self.deeper)
        )
        return wider, deeper

    def task_model(self, model: BackboneConfig, place: int) -> BackboneConfig:
        sizes: Any = model
        wide, deep = (prod(times[place:]) for times in (self.wider, self.deeper))
        if wide == deep == 1:  # sizes of an imported model have other names
            return model
        fewer = {name: getattr(sizes, name) // wide for name in ("width", "heads", "ffn_width")}
        return model.model_copy(update={**fewer, "layers": sizes.layers // deep})

    def extend_model(self, model: BackboneConfig, tokens: "Artifact") -> BackboneConfig:
        """The model at its size in the last domain, with a prompt token for each domain in its
        vocabulary.
        """
        from stages.models.growth import grown_config

        names = tokens.metrics["tasks"]
        types = int(tokens.metrics["vocabulary_size"])
        for name, times in (("wider", self.wider), ("deeper", self.deeper)):
            if len(times) >= len(names):
                raise UsageError(
                    f"memory.{name} has {len(times)} numbers, but {tokens.reference} has {len(names)} domains: it "
                    f"takes at most {len(names) - 1}, one for each but the first."
                )
        factors = (prod(self.wider), prod(self.deeper))
        if factors != (1, 1):
            model = grown_config(model, *factors)
        return with_task_tokens(model, tokens, LanguageSettings(answers=(), first=types))
