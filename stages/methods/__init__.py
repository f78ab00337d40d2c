"""What `train --method` names: how batches are formed and what is minimized."""

from stages.registry import Part, Registry


def _folder(name: str, settings: str, method: str) -> Part:
    here = f"stages.methods.{name}"
    return Part(f"{here}.config:{settings}", f"{here}.method:{method}")


METHODS = Registry(
    "method",
    {
        "lm": _folder("lm", "LmConfig", "LanguageModeling"),
        "trime": _folder("trime", "TrimeConfig", "Trime"),
        "trime-long": _folder("trime_long", "TrimeLongConfig", "TrimeLong"),
        "trime-ext": _folder("trime_ext", "TrimeExtConfig", "TrimeExt"),
        "spalm": _folder("spalm", "SpalmConfig", "Spalm"),
    },
)
