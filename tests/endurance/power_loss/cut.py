"""What a disk may hold when the power fails: all that was synced, and of the rest whatever chance
left.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.endurance.power_loss.record import Data, Done, Entries, Event, File, Folder, Node, Sync

FATES = ("nothing", "names", "content", "everything", "anything")
"""What reaches the disk of what was not synced: no name and no byte, all names, all bytes, both, or
a random part.
"""


def cuts(events: Sequence[Event], began: int) -> Iterator[int]:
    """Numbers of events, from `began` on, after which the power may fail; none before what a caller
    was told last.
    """
    return (
        n
        for n in range(began, len(events) + 1)
        if n == len(events) or not isinstance(events[n], Done)
    )


def relied_on(events: Sequence[Event], cut: int) -> list[Any]:
    """What the caller had been told by then."""
    return [event.what for event in events[:cut] if isinstance(event, Done)]


def build(
    events: Sequence[Event], cut: int, fate: str, chance: random.Random, top: Folder, root: Path
) -> None:
    """Write the folder that is found after a power loss behind the first `cut` events into `root`."""
    past = events[:cut]
    synced = {event.node: number for number, event in enumerate(past) if isinstance(event, Sync)}
    names = _names(past, synced, fate, chance)
    content = _content(past, synced, fate, chance)
    _write(top, names, content, root)


def _names(
    past: Sequence[Event], synced: dict[Node, int], fate: str, chance: random.Random
) -> dict[Folder, Any]:
    names: dict[Folder, dict[str, Node]] = {}
    for number, event in enumerate(past):
        if not isinstance(event, Entries):
            continue
        durable = all(synced.get(folder, -1) > number for folder, _, _ in event.changes)
        if not durable and not _survives(fate, "names", chance):
            continue
        for folder, name, node in event.changes:
            names.setdefault(folder, {}).pop(name, None)
            if node is not None:
                names[folder][name] = node
    return names


def _survives(fate: str, what: str, chance: random.Random) -> bool:
    return chance.random() < 0.5 if fate == "anything" else fate in (what, "everything")


def _content(
    past: Sequence[Event], synced: dict[Node, int], fate: str, chance: random.Random
) -> dict[File, bytes]:
    content: dict[File, bytes] = {}
    for number, event in enumerate(past):
        if isinstance(event, Data):
            durable = synced.get(event.file, -1) > number
            before = content.get(event.file, b"")
            content[event.file] = (
                event.content if durable else _torn(before, event.content, fate, chance)
            )
    return content


def _torn(before: bytes, after: bytes, fate: str, chance: random.Random) -> bytes:
    """What is left of writing `after` over `before` without a sync; what was only appended to is
    there still.
    """
    if fate in ("content", "everything"):
        return after
    if fate == "nothing":
        return before
    kept = len(before) if after.startswith(before) else 0
    reached = chance.randrange(kept, len(after) + 1)
    torn = [
        after[:kept],
        after[:reached],
        after[:kept] + bytes(len(after) - kept),  # the size was written, the bytes were not
        after[:reached] + bytes(len(after) - reached),
    ]
    return chance.choice([before, after, *torn] if fate == "anything" else torn)


def _write(
    folder: Folder, names: dict[Folder, dict[str, Node]], content: dict[File, bytes], path: Path
) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, node in names.get(folder, {}).items():
        if isinstance(node, Folder):
            _write(node, names, content, path / name)
        else:
            (path / name).write_bytes(content.get(node, b""))
