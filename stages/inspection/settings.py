"""Questions to a model with its memories: how it is read, and which passages are looked at."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stages.config import Settings, Spelling
from stages.errors import UsageError
from stages.examples.cutting import AskedWindows


class ReadSettings(AskedWindows):
    """How a model is read with its memories."""

    memory: Annotated[tuple[str, ...] | None, Spelling("SOURCES[:key=value,…]", repeated=True)] = (
        None
    )
    """One reading, on top of those before it, with numbers: external:temperature=10,lambda=0.25;
    none: the model alone; None: those of --report, else as the model was trained to read, at fixed
    numbers."""
    report: Annotated[str | None, Spelling("REPORT")] = None
    """Take the readings and windows that this evaluation settled on, and its model where none is
    named.
    """
    index: Annotated[str | None, Spelling("INDEX")] = None
    """Memory of another encoder, searched, or the text that exact memory and drafts match."""
    neighbors: Annotated[str | None, Spelling("NEIGHBORS")] = None
    """The same, as stored, or what a spalm model reads; for a text of no split their index is
    searched.
    """
    open_book: Annotated[str | None, Spelling("TOKENS")] = None
    """Tokens whose passages stand before the context, chosen anew every 32 tokens; None: those of
    --report.
    """
    stride: Annotated[int, Field(gt=0)] | None = None
    """Tokens between windows; None: `context`; where text is written half of it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of models' arithmetic."""

    @model_validator(mode="after")
    def _one_says_what_is_read(self) -> Self:
        if self.report is not None and self.memory is not None:
            raise UsageError("--report and --memory both say what is read; give one of them.")
        return self


class Request(ReadSettings):
    """A model with its memories, as a user names them."""

    source: str
    """A model, index or neighbors."""
    tokens: str | None = None
    """Another corpus than the model's own."""

    @property
    def references(self) -> dict[str, str | None]:
        """References by role; None if not named."""
        return {"index": self.index, "neighbors": self.neighbors, "tokens": self.tokens}


class PassageSettings(Settings):
    """Which passages are inspected: a text, tokens of a split, or some that a report chooses."""

    text: str | None = None
    """A text to read, from its first token on."""
    position: Annotated[int, Field(ge=0)] | None = None
    """First token of a passage of `split`."""
    split: str | None = None
    """Split of the passage; None: test."""
    length: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Tokens of the passage; None: 32."""
    select: Annotated[tuple[str, ...] | None, Spelling("KIND[,KIND]")] = None
    """Passages that the token scores of --report choose: gains, losses, rare (words), or several of
    these.
    """
    passages: Annotated[int, Field(ge=1, le=50)] | None = None
    """Passages of each kind of `select`; None: 3."""
    contexts: Annotated[int, Field(ge=0, le=1024)] = 4
    """Retrieved contexts shown for each token."""

    def check(self) -> None:
        """Check that exactly one passage, or way to choose some, is named. Raises: UsageError."""
        ways = {"--text": self.text, "--position": self.position, "--select": self.select}
        named = [option for option, value in ways.items() if value is not None]
        if len(named) != 1:
            raise UsageError(
                "Name one passage, --text TEXT or --position N of a split, or let --select choose some."
            )
        fitting = {
            "split": ["--position"],
            "length": ["--position", "--select"],
            "passages": ["--select"],
        }
        for name, options in fitting.items():
            if getattr(self, name) is not None and named[0] not in options:
                raise UsageError(
                    f"--{name} goes with {' and '.join(options)}, not with {named[0]}."
                )
