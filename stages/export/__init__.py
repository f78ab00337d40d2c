"""Models as folders that transformers reads: each backbone that has a form there is one module and one line here."""

from stages.registry import Registry

FORMS = Registry(
    "exported backbone",
    {
        "transformer": "stages.export.gpt2:write_gpt2",
        "huggingface": "stages.export.imported:write_imported",
    },
)
"""`write(model, positions, folder) -> Form` of each."""
