"""Settings of an evaluation. Free of torch."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from stages.diagnostics.options import option_names
from stages.diagnostics.passage import spelled_passage
from stages.encoding.window_settings import WindowedConfig
from stages.retrieval.reading import Reading, parse_readings
from stages.search.exclusion import checked_exclusion


class EvaluateConfig(WindowedConfig):
    """Settings of evaluate."""

    split: str = "test"
    """Split that is scored."""
    tune_split: str | None = "valid"
    """Split on which numbers are tuned; None once resolved, if none is."""
    memory: tuple[str, ...] | None = None
    """Readings, in order; `none`: the plain model. None: those of the model's method, then kNN-LM where there
    is a datastore, all tuned."""
    gate_k: tuple[Annotated[int, Field(ge=0, le=1024)], ...] | None = None
    """Neighbours that the gate of a model reads: the first number makes the scores, perplexity is reported for
    each; None: as many as in training."""
    passage: str | None = None
    """START:STOP, tokens of the split of which gates and neighbours are shown; None: the first 64."""
    score: Literal["all", "last-word"] = "all"
    """Tokens that count, in tuning too: all, or those of the last word of every document."""
    reset: Literal["none", "document"] = "none"
    """Whether windows and carried state begin anew at every document."""
    frequency: Literal["train", "split"] = "train"
    """Where tokens are counted for perplexity by frequency: in the training split, or in the scored one."""
    save_token_scores: bool = False
    """Whether `scores.zarr` is written."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the forward pass."""
    exclude: Annotated[str, AfterValidator(checked_exclusion)] | None = None
    """Rows that a token may not find where the datastore was made of the split that is read: its own (self), those
    within N of it (window:N), or those of its document. None: there is no such split."""

    @property
    def probe_options(self) -> dict[str, Any]:
        """Options of probes."""
        return {name: getattr(self, name) for name in option_names()}

    @field_validator("memory", mode="before")
    @classmethod
    def _listed(cls, memory: Any) -> Any:
        return (memory,) if isinstance(memory, str) else memory

    @field_validator("passage")
    @classmethod
    def _range(cls, passage: str | None) -> str | None:
        return None if passage is None else spelled_passage(passage)

    @field_validator("memory")
    @classmethod
    def _spell(cls, memory: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if memory is None else tuple(r.spelled for r in parse_readings(memory))

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The readings of `memory`, parsed; none for None."""
        return parse_readings(self.memory or ())
