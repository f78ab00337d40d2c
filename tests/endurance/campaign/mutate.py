"""Seeded damage: to bytes, and to numbers, names and shapes of JSON; and values that nobody
expects.
"""

import json
from copy import deepcopy
from random import Random
from typing import Any

ELSEWHERE = [
    "../strangers/kept.txt",
    "../../strangers/kept.txt",
    "../../../strangers/kept.txt",
    "../strangers",
]
TEXTS = [
    *(
        "",
        " ",
        "\n",
        "x" * 300,
        "x" * 100_000,
        "é" * 90,
        "\u202e",
        "\x1b[31mred",
        "None",
        "null",
        "a/b",
        "~",
    ),
    *(
        "-",
        "--",
        "-1",
        ".",
        "..",
        "{tokens}",
        "%s%n",
        "$(touch x)",
        "NaN",
        "\udcff",
        "[" * 3000,
        "a=b",
        "=",
        ",",
        ":",
    ),
    *ELSEWHERE,
]
NUMBERS = [
    *(
        "0",
        "-1",
        "1",
        "2",
        "3.5",
        "-0.0",
        "1e-30",
        "1e308",
        "-1e308",
        "1e999",
        "nan",
        "inf",
        "-inf",
        "1_0",
        "0x10",
    ),
    *(
        str(2**31),
        str(2**32),
        str(2**63),
        str(2**64),
        str(10**23),
        "-" + str(2**63),
        "٣",
        "1e",
        "--1",
    ),
]
HUGE = frozenset(number for number in NUMBERS if len(number) > 6 and number.isdigit()) | {"1e308"}
"""Legal as an amount of work that nobody lives to see the end of."""
SCALARS: list[Any] = [
    *(0, -1, 1, 7, 2**31, 2**32, 2**63, 2**64, 10**23, 1e308, -1e-30, float("nan"), float("inf")),
    *(True, False, None, "", "x", "x" * 10_000, [], {}, [[]], [1, "a"], {"a": 1}, *ELSEWHERE),
]


def damaged_bytes(random: Random, data: bytes) -> tuple[bytes, str]:
    """Some bytes, damaged, and what was done to them."""
    at = random.randrange(len(data)) if data else 0
    many = random.randint(1, 1 + len(data) // 4)
    junk = random.randbytes(min(many, 4096))
    ways = {
        f"bit flipped at {at}": data[:at]
        + bytes([data[at] ^ 1 << random.randrange(8)])
        + data[at + 1 :]
        if data
        else junk,
        f"cut at {at}": data[:at],
        "emptied": b"",
        f"{len(junk)} bytes appended": data + junk,
        f"{many} bytes removed at {at}": data[:at] + data[at + many :],
        f"{len(junk)} bytes put in at {at}": data[:at] + junk + data[at:],
        f"{many} bytes zeroed at {at}": data[:at]
        + bytes(min(many, len(data) - at))
        + data[at + many :],
        f"{len(junk)} bytes replaced at {at}": data[:at] + junk + data[at + len(junk) :],
        "all of it nested lists": b"[" * 200_000,
    }
    how, found = random.choice([(how, found) for how, found in ways.items() if found != data])
    return found, how


def damaged_json(random: Random, value: Any, within: tuple[str, ...] = ()) -> tuple[Any, str]:
    """A JSON value with one thing changed, and what that was.

    Args:
        random: decides.
        value: an object or a list.
        within: keys of the outermost object that may be changed; none means any.
    """
    changed = deepcopy(value)
    places = [
        (holder, key, path) for holder, key, path in _places(changed, "") if _inside(path, within)
    ]
    if not places:
        return [changed], "put into a list"
    holder, key, path = random.choice(places)
    old = holder[key]
    match random.choice(["change", "change", "change", "remove", "rename", "deepen"]):
        case "remove":
            del holder[key]
            return changed, f"{path} removed"
        case "rename" if isinstance(holder, dict):
            new = random.choice([key + "x", "", *ELSEWHERE])
            holder[new] = holder.pop(key)
            return changed, f"{path} renamed to {new[:40]!r}"
        case "deepen":
            for _ in range(500):
                holder[key] = [holder[key]]
            return changed, f"{path} put into 500 lists"
        case _:
            holder[key] = _changed(random, old)
            return changed, f"{path}: {json.dumps(old)[:40]} -> {json.dumps(holder[key])[:40]}"


def damaged_json_text(random: Random, text: str, within: tuple[str, ...] = ()) -> tuple[str, str]:
    """The same for the text of a JSON file."""
    value, how = damaged_json(random, json.loads(text), within)
    return json.dumps(value, indent=2), how


def _inside(path: str, within: tuple[str, ...]) -> bool:
    return not within or path.split(".")[1] in within


def _places(value: Any, path: str) -> list[tuple[Any, Any, str]]:
    """Every (holder, key, path) in a JSON value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found = []
    for key, inner in items:
        found += [(value, key, f"{path}.{key}"), *_places(inner, f"{path}.{key}")]
    return found


def _changed(random: Random, old: Any) -> Any:
    near: list[Any] = []
    if isinstance(old, bool):
        near = [not old]
    elif isinstance(old, (int, float)):
        near = [old + 1, old - 1, old * 2, -old, old / 3]
    elif isinstance(old, str) and old:
        near = [old[:-1], old[::-1], old.upper()]
    choices = near if near and random.random() < 0.5 else SCALARS
    return random.choice([choice for choice in choices if repr(choice) != repr(old)] or SCALARS)
