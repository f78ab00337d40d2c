"""Export of models as folders for transformers. Each backbone with such a form has one line in
`FORMS`.
"""

from typing import NamedTuple

from stages.registry import Registry


class Form(NamedTuple):
    """Form of an exported model in transformers."""

    architecture: str
    """Class of the model in transformers."""
    longest: int | None
    """Maximum number of tokens read at once; None: unlimited."""


FORMS = Registry(
    "exported backbone",
    {
        "transformer": "stages.export.forms:write_gpt2",
        "huggingface": "stages.export.forms:write_imported",
    },
)
"""Function `write(model, positions, folder) -> Form` of each backbone."""
