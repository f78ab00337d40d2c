"""Settings of an evaluation. Free of torch."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from stages.adaptation.settings import Dynamic, SpelledDynamic, split_dynamic
from stages.artifacts.schema import Expected, Figures, Schema, anything, between
from stages.config import Settings, Spelling
from stages.diagnostics.options import OPTIONS, spelled_passage
from stages.examples.cutting import WindowedConfig
from stages.open_book.settings import OPEN_BOOK, OpenBook
from stages.retrieval.grammar import DYNAMIC, parse_readings
from stages.retrieval.reading import Reading, SpelledReading
from stages.search.config import checked_exclusion
from stages.translation.settings import DecodingSettings, LengthPenalty, MaxLength

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

READING = Spelling("SOURCES[:key=value,…]", repeated=True)


class BleuSettings(Settings):
    """How sacrebleu reads text; chrF follows `lowercase`."""

    lowercase: bool = False
    """Whether letters count alike in both cases."""
    tokenize: str | None = None
    """Tokenizer of sacrebleu; None: its default, 13a."""


class EvaluateConfig(WindowedConfig):
    """Settings of evaluate."""

    split: str = "test"
    """Split to score."""
    memory: Annotated[tuple[SpelledReading | SpelledDynamic, ...] | None, READING] = None
    """A memory to read after those given before it: external:lambda=tune or
    long:size=500,lambda=tune (lambda=learned: a λ for each context); first perhaps dynamic, whose
    weights learn from what was scored; or by name: knn-lm, knn-mt,
    neural-cache, exact, exact-stream, trime, trime-long, trime-ext, none; None: the memory that the
    model was trained with, then tuned knn-lm for an index."""
    tune_split: str | None = "valid"
    """Split on which the numbers of memories are tuned."""
    tune_by: Literal["perplexity", "bleu"] = "perplexity"
    """Measure that tuning optimizes; bleu translates the first 200 sentences of the tuning split at
    each of at most 32 grid points."""
    open_book: OpenBook | None = None
    """Passages before the context; None: there is no book, or the default ones of the book that is
    named."""
    gate_k: Annotated[
        tuple[Annotated[int, Field(ge=0, le=1024)], ...] | None, Spelling("K[,K…]")
    ] = None
    """Number of neighbours that a spalm model's gate reads; any further numbers are reported, too;
    None: as in training."""
    passage: Annotated[str | None, Spelling("START:STOP")] = None
    """Tokens whose gates and neighbours the report shows; None: the first 64."""
    score: Literal["all", "last-word"] = "all"
    """Tokens to score, in tuning, too: all, or those of each document's last word, with accuracy.
    """
    reset: Literal["none", "document"] = "none"
    """Begin windows and carried state anew at every document (document), or never (none)."""
    frequency: Literal["train", "split"] = "train"
    """Split in which tokens are counted for perplexity by frequency: train, or the scored split as
    in the TRIME paper."""
    count_orders: Annotated[
        tuple[Annotated[int, Field(ge=1, le=32)], ...] | None, Spelling("N[,N…]")
    ] = None
    """Orders of further n-gram counts, besides trigrams, that are controls of every row."""
    save_token_scores: bool = True
    """Keep the log-probability of every token (scores.zarr), which `memlm compare` reads."""
    beam: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Hypotheses for each sentence when pairs are translated, for BLEU; 0: only perplexity; None:
    4.
    """
    length_penalty: LengthPenalty | None = None
    """α of a translation's score, log p / length^α; None: 0.6."""
    max_length: MaxLength | None = None
    """Longest translation, FACTOR,MORE: FACTOR times the source's tokens, and MORE; None: 1.2,10.
    """
    bleu_lowercase: bool = False
    """Ignore upper and lower case in BLEU and chrF."""
    bleu_tokenize: str | None = None
    """Tokenizer of sacrebleu; None: 13a."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the forward pass."""
    exclude: Annotated[
        Annotated[str, AfterValidator(checked_exclusion)] | None, Spelling("self|window:N|document")
    ] = None
    """Rows that a token may not find if the datastore was made from the scored split: its own
    (self), those within N of it, or those of its document."""

    @property
    def probe_options(self) -> dict[str, Any]:
        """Options of probes."""
        return {name: getattr(self, name) for name in OPTIONS}

    @field_validator("memory", mode="before")
    @classmethod
    def _parse(cls, memory: Any) -> Any:
        """Readings from the texts that users type, and that manifests hold."""
        texts = [memory] if isinstance(memory, str) else memory
        if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):
            dynamic, specs = split_dynamic(texts)
            readings = parse_readings(specs)
            return readings if dynamic is None else (dynamic, *readings)
        return texts

    @field_validator("passage")
    @classmethod
    def _range(cls, passage: str | None) -> str | None:
        return None if passage is None else spelled_passage(passage)

    @property
    def decoding(self) -> DecodingSettings:
        """How translations are searched for, of a resolved configuration with a beam."""
        settings = {}
        for name in DecodingSettings.model_fields:
            value = getattr(self, name)
            if value is not None:
                settings[name] = value
        return DecodingSettings(**settings)

    @property
    def bleu(self) -> BleuSettings:
        """How BLEU reads text."""
        return BleuSettings(lowercase=self.bleu_lowercase, tokenize=self.bleu_tokenize)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The readings of `memory`; none for None."""
        return tuple(part for part in self.memory or () if isinstance(part, Reading))

    @property
    def dynamic(self) -> Dynamic | None:
        """How weights learn from what was scored; None: they stay."""
        return next((part for part in self.memory or () if isinstance(part, Dynamic)), None)

    @property
    def above(self) -> str:
        """Name of what changes the model itself, before memories are read; empty: nothing does."""
        if self.open_book is not None:
            return OPEN_BOOK
        return "" if self.dynamic is None else DYNAMIC


class RowFigures(Figures):
    """Metrics of one row of a report."""

    row: str
    perplexity: float | None
    nll: float | None


class ReportFigures(Figures):
    """Metrics of a report."""

    rows: Annotated[list[RowFigures], Field(min_length=1)]
    method: str
    split: str
    score: Literal["all", "last-word"]
    memories: list[dict[str, Any]]


def score_arrays(report: "Artifact", name: str) -> Expected | None:
    """The arrays of `scores.zarr`; values are compared with infinity and nan where they are
    averaged.
    """
    tokens = report.metrics.get("tokens")
    if name == "scores.zarr/target":
        types = report.input("tokens").metrics["vocabulary_size"]
        return Expected((tokens,), ("int32",), between(0, types, "ids of the vocabulary"))
    if name.startswith("scores.zarr/passage") and not name.endswith("score"):
        return Expected((tokens,), ("int32",), anything)
    shape = (tokens, None) if name == "scores.zarr/logp_memory" else (tokens,)
    return Expected(shape, ("float32",), anything)


REPORT = Schema(ReportFigures, score_arrays)
