"""Names that users type -> the code behind them, imported only when it is used."""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from stages.errors import UsageError, did_you_mean

OUTSIDE = "MEMLM_PARTS"
"""Environment variable: modules with parts of one's own, separated by commas."""


class Part(NamedTuple):
    """Where a part with settings of its own stands: the class of the settings, free of torch, and the code.

    Each is `"module:object"`.
    """

    settings: str
    code: str

    @classmethod
    def within(cls, package: str, settings: str, code: str) -> "Part":
        """A part whose settings and code are in modules of one package: `"module:object"` of each."""
        return cls(f"{package}.{settings}", f"{package}.{code}")


class Registry:
    """One kind of exchangeable part: each name has lazy targets, `"module:object"` or a `Part`.

    A part from outside the package is added by one line: `REGISTRY.targets["name"] = Part(…)`. Modules that hold such
    lines are named by `$MEMLM_PARTS`, so that commands and worker processes know them, too.
    """

    def __init__(self, kind: str, targets: Mapping[str, Part | str], others: "Sequence[Registry]" = ()) -> None:
        """`others`: of parts of another kind that a name may be mistaken for."""
        self.kind = kind
        self.targets = dict(targets)
        self.others = others

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.targets or (import_outside() and name in self.targets))

    def names(self) -> list[str]:
        return list(self.targets)

    def load(self, name: str) -> Any:
        """The code registered as `name`. Raises UsageError, with the nearest name, if there is none."""
        part = self._part(name)
        return load(part if isinstance(part, str) else part.code)

    def settings(self, name: str) -> Any:
        """The class of the settings of `name`. Raises UsageError, with the nearest name, if there is none."""
        part = self._part(name)
        assert isinstance(part, Part), f"{self.kind} {name} has no settings"
        return load(part.settings)

    def _part(self, name: object) -> Part | str:
        if name not in self:
            known = did_you_mean(str(name), self.targets)
            elsewhere = next((f" (it is an {other.kind})" for other in self.others if name in other), "")
            raise UsageError(f"There is no {self.kind} {name!r}; {known}{elsewhere}")
        return self.targets[str(name)]


@cache
def import_outside() -> bool:
    """Import the modules that `$MEMLM_PARTS` names. Raises: UsageError if one cannot be imported."""
    for module in filter(None, os.environ.get(OUTSIDE, "").split(",")):
        try:
            import_module(module)
        except ImportError as error:
            raise UsageError(f"{OUTSIDE} names {module}, which cannot be imported: {error}") from error
    return True


def load(target: str) -> Any:
    """The object that `"module:object"` names."""
    module, attribute = target.split(":")
    return getattr(import_module(module), attribute)
