"""Names that users type -> the code behind them, imported only when it is used."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from stages.errors import UsageError, did_you_mean


class Registry:
    """One kind of exchangeable part: each name has a lazy target `"module:object"`."""

    def __init__(self, kind: str, targets: Mapping[str, str]) -> None:
        self.kind = kind
        self.targets = dict(targets)

    def __contains__(self, name: str) -> bool:
        return name in self.targets

    def names(self) -> list[str]:
        return list(self.targets)

    def load(self, name: str) -> Any:
        """The object registered as `name`. Raises UsageError, with the nearest name, if there is none."""
        if name not in self.targets:
            raise UsageError(f"There is no {self.kind} {name!r}; {did_you_mean(name, self.targets)}")
        return load(self.targets[name])


def load(target: str) -> Any:
    """The object that `"module:object"` names."""
    module, attribute = target.split(":")
    return getattr(import_module(module), attribute)
