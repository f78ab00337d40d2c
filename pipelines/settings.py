"""Settings as nested tables, put together from several places."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from stages.errors import UsageError

Settings = dict[str, Any]


def merged(*layers: Mapping[str, Any]) -> Settings:
    """Several tables merged; later values win."""
    result: Settings = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            if isinstance(below, Mapping) and isinstance(value, Mapping):
                value = merged(below, value)
            result[key] = value
    return result


def nested(flat: Mapping[str, Any]) -> Settings:
    """`{"a.b": 1}` -> `{"a": {"b": 1}}`, without values that are None (options not given)."""
    result: Settings = {}
    for path, value in flat.items():
        if value is not None:
            for key in reversed(path.split(".")):
                value = {key: value}
            result = merged(result, value)
    return result


def leaves(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables with their dotted names.

    >>> dict(leaves({"a": {"b": 1}, "c": 2}))
    {'a.b': 1, 'c': 2}
    """
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def assignment(text: str) -> Settings:
    """`a.b=value` as a table; the value is TOML, or else the text itself. Raises UsageError without
    a `=`.
    """
    path, sign, value = text.partition("=")
    if not sign or not all(part.strip() for part in path.split(".")):
        raise UsageError(f"--set takes NAME=VALUE or GROUP.NAME=VALUE, not {text!r}.")
    return nested({path.strip().replace("-", "_"): _toml_value(value.strip())})


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except RecursionError:
        raise UsageError(f"{text[:20]}… is nested too deeply.") from None
