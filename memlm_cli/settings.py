"""Settings of one command: defaults of memlm.toml, then its --config file, then --set, then its own options."""

from collections.abc import Mapping
from typing import Any

from memlm_cli.options import Common
from pipelines.options import Option
from pipelines.settings import Settings, assignment, merged, nested
from stages.config import read_toml
from stages.errors import UsageError

LENGTHS = (("steps", "epochs"),)
"""Settings that say the same thing: the one that is said later, or typed, takes the place of the other."""


def given_settings(common: Common, given: Mapping[str, Any], options: Mapping[str, Option] = {}) -> Settings:
    """All that a user said about a stage's configuration, as nested tables; what is not said has its default.

    What was typed wins over what memlm.toml says, whichever way it was typed.

    Args:
        common: has --config, --set and --precision.
        given: values of the command's own options by name; None: not given.
        options: the settings that these give; others give the setting of their name.
    """
    result: Settings = {}
    layers: list[Settings] = []
    for by_default in (True, False):
        named = {name: value for name, value in given.items() if (name in common.by_default) == by_default}
        own = {options[name].setting if name in options else name: value for name, value in named.items()}
        layers += _layers(common, own, by_default=by_default)
    for layer in layers:
        result = merged(_giving_way(result, layer), layer)
    return result


def _layers(common: Common, own: Mapping[str, Any], *, by_default: bool) -> list[Settings]:
    """Settings of memlm.toml, or all others: the file of --config, --set and options."""
    chosen = ("config" in common.by_default) == by_default
    file = read_toml(common.config) if common.config and chosen else {}
    assigned = [assignment(text) for text in (common.default_set if by_default else common.set or ())]
    said = merged(*assigned, nested(own))
    _require_one(said)
    return [file, said]


def _giving_way(settings: Settings, later: Settings) -> Settings:
    """Settings without those in whose place a later layer says the same thing by another name, in groups too."""
    replaced = {name for one, other in LENGTHS for name, said in ((one, other), (other, one)) if said in later}
    return {
        name: _giving_way(value, later[name])
        if isinstance(value, dict) and isinstance(later.get(name), dict)
        else value
        for name, value in settings.items()
        if name not in replaced
    }


def _require_one(said: Settings) -> None:
    """Raises: UsageError where two settings say the same thing."""
    for one, other in LENGTHS:
        if one in said and other in said:
            raise UsageError(f"--{one} and --{other} both say how long to train; give one of them.")
    for below in said.values():
        if isinstance(below, dict):
            _require_one(below)
