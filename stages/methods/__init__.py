"""What `train --method` names: how batches are formed and what is minimized."""

from stages.registry import Registry

METHODS = Registry("method", {"lm": "stages.methods.lm:LanguageModeling"})
