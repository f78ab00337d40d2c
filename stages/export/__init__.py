"""Models as folders that transformers reads: each backbone that has a form there is one module and one line here."""

from typing import NamedTuple

from stages.registry import Registry


class Form(NamedTuple):
    """A model as transformers knows it."""

    architecture: str
    """Its class there."""
    longest: int | None
    """Tokens that it reads at once; None: any number."""


FORMS = Registry(
    "exported backbone",
    {
        "transformer": "stages.export.forms:write_gpt2",
        "huggingface": "stages.export.forms:write_imported",
    },
)
"""`write(model, positions, folder) -> Form` of each."""
