"""Heads: what a model says of a whole example, instead of its next token."""

from stages.registry import Part, Registry

HEADS = Registry(
    "head",
    {
        "classifier": Part.within(
            "stages.models.heads", "classifier_settings:ClassifierSettings", "classifier:Classifier"
        ),
        "modulated": Part.within("stages.models.heads", "modulated_settings:ModulatedSettings", "modulated:Modulated"),
    },
)
