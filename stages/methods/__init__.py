"""What `train --method` names: how batches are formed and what is minimized."""

from stages.registry import Registry

METHODS = Registry(
    "method",
    {
        "lm": "stages.methods.lm:LanguageModeling",
        "trime": "stages.methods.trime:Trime",
        "trime-long": "stages.methods.trime_long:TrimeLong",
        "trime-ext": "stages.methods.trime_ext:TrimeExt",
        "spalm": "stages.methods.spalm:Spalm",
    },
)
