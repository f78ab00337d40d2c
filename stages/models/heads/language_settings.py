"""Settings of the language head. Free of torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stages.config import Settings


class LanguageSettings(Settings):
    """The vocabulary itself answers: a label is a few tokens that follow `<ans>`."""

    reads_frozen: ClassVar[bool] = False

    name: Literal["language"] = "language"
    answers: tuple[tuple[int, ...], ...]
    """Tokens of each label."""
    first: Annotated[int, Field(gt=0)]
    """Id of `<ans>`; those of `<gen>` and of one `<task>` a task follow. They lie behind the tokens of the text."""
