"""Heads: what a model says of a whole example, instead of its next token."""

from stages.registry import Part, Registry

HEADS = Registry(
    "head",
    {
        "classifier": Part.within(
            "stages.models.heads", "classifier_settings:ClassifierSettings", "classifier:Classifier"
        ),
        "language": Part.within("stages.models.heads", "language_settings:LanguageSettings", "language:Language"),
        "matcher": Part.within("stages.models.heads", "matcher_settings:MatcherSettings", "matcher:Matcher"),
        "modulated": Part.within("stages.models.heads", "modulated_settings:ModulatedSettings", "modulated:Modulated"),
    },
)
