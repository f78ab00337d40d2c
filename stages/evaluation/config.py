"""Settings of an evaluation. Free of torch."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from stages.config import Spelling
from stages.diagnostics.options import option_names
from stages.diagnostics.passage import spelled_passage
from stages.encoding.window_settings import WindowedConfig
from stages.retrieval.reading import Reading, parse_readings
from stages.search.config import checked_exclusion

READING = Spelling("SOURCES[:key=value,…]", repeated=True)


class EvaluateConfig(WindowedConfig):
    """Settings of evaluate."""

    split: str = "test"
    """Split to score."""
    memory: Annotated[tuple[str, ...] | None, READING] = None
    """One reading, on top of those before it: external:lambda=tune or long:size=500,lambda=tune (lambda=learned: one
    for each context); or by name: knn-lm, neural-cache, trime, trime-long, trime-ext, none; None: as the model was
    trained to read, then knn-lm of an index, tuned."""
    tune_split: str | None = "valid"
    """Split that numbers are tuned on."""
    gate_k: Annotated[tuple[Annotated[int, Field(ge=0, le=1024)], ...] | None, Spelling("K[,K…]")] = None
    """Neighbours that a spalm model's gate reads, the first number, and others whose perplexity is reported; None: as
    in training."""
    passage: Annotated[str | None, Spelling("START:STOP")] = None
    """Tokens whose gates and neighbours are shown; None: the first 64."""
    score: Literal["all", "last-word"] = "all"
    """Tokens that count, in tuning too: all, or those of each document's last word, with accuracy."""
    reset: Literal["none", "document"] = "none"
    """Whether windows and carried state begin anew at every document."""
    frequency: Literal["train", "split"] = "train"
    """Split whose tokens are counted for perplexity by frequency: train, or the one that is scored, as in the TRIME
    paper."""
    count_orders: Annotated[tuple[Annotated[int, Field(ge=1, le=32)], ...] | None, Spelling("N[,N…]")] = None
    """Orders of more n-grams that count as controls of every row, beside trigrams."""
    save_token_scores: bool = False
    """Keep the log-probability of every token (scores.zarr)."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the forward pass."""
    exclude: Annotated[Annotated[str, AfterValidator(checked_exclusion)] | None, Spelling("self|window:N|document")] = (
        None
    )
    """Rows that tokens may not find where the datastore was made of the split that is read: their own (self), those
    within N of it, or those of its document."""

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
