"""The form of an exported model in transformers. Free of torch."""

from typing import NamedTuple


class Form(NamedTuple):
    """A model as transformers knows it."""

    architecture: str
    """Its class there."""
    longest: int | None
    """Tokens that it reads at once; None: any number."""
