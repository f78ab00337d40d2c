"""Power losses in every command of the pipeline, in removals and in garbage collection.

    python -m tests.endurance.power_loss --minutes 30            every command in turn, cases at random
    python -m tests.endurance.power_loss --only model --cases 2000 --seed 1

Each command runs once in this process, in a copy of a tiny pipeline's store, while all that it does
to the folder is recorded. A case cuts the record somewhere, builds the folder that may then be on
the disk, looks whether the store is sound and whether all that the command had told is there, runs
the command again, and compares what it leaves with an undisturbed run. Ends with a table and code 1
if anything failed.
"""

import argparse
import importlib
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from stages.artifacts.store import Store
from tests.endurance.campaign.process import SMALL_SHARDS
from tests.endurance.campaign.world import STAGES, write_texts
from tests.endurance.power_loss.check import changes, state
from tests.endurance.power_loss.commands import command
from tests.endurance.power_loss.replay import Replay, Step


@dataclass
class Row:
    """What a command went through."""

    replay: Replay
    tried: int = 0
    failed: int = 0
    messages: list[str] = field(default_factory=list)


class Pipeline:
    """The commands of the campaign's tiny pipeline, each with the folder that it begins in."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._references: dict[str, str] = {}

    def replays(self) -> Iterator[tuple[str, Replay]]:
        """A replay of every command, recorded as they are made one after the other; then of what
        removes.
        """
        prepared = self._scratch / "prepared"
        write_texts(prepared)
        for name, arguments in STAGES.items():
            step = command([*map(self._filled, arguments), "--name", name, "--device", "cpu"])
            yield name, self._replay(name, [step], prepared)
            before = state(prepared)
            step(prepared)
            (made,) = {promise.reference for promise in changes(before, state(prepared))} - _names(
                prepared
            )
            self._references[name] = made
        gone = [
            command(["artifacts", "rm", "--force", r], gone_is_fine=True)
            for r in self._references.values()
        ]
        yield "rm", self._replay("rm", gone[-3:], prepared)
        yield (
            "gc",
            self._replay(
                "gc", [command(["artifacts", "gc", "--unnamed"])], _without_names(prepared)
            ),
        )

    def _filled(self, argument: str) -> str:
        return self._references.get(argument[1:-1], argument) if argument[:1] == "{" else argument

    def _replay(self, name: str, steps: list[Step], prepared: Path) -> Replay:
        folder = self._scratch / name
        folder.mkdir()
        return Replay(steps, prepared, folder)


def _names(folder: Path) -> set[str]:
    store = Store(folder / "store")
    return {
        f"{kind.name}/{name.name}"
        for kind in (store.root / "names").iterdir()
        for name in kind.iterdir()
    }


def _without_names(prepared: Path) -> Path:
    """A copy in which nothing has a name, and one artifact lacks its own: a draft."""
    folder = prepared.with_name("unnamed")
    shutil.copytree(prepared, folder)
    shutil.rmtree(folder / "store" / "names")
    batches = next((folder / "store" / "batches").glob("[0-9a-f]*"))
    batches.rename(batches.with_name(f".{batches.name}-partial"))
    return folder


def main() -> int:
    asked = _arguments()
    for name, value in SMALL_SHARDS.items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
    with tempfile.TemporaryDirectory(dir=asked.scratch) as scratch:
        rows = {
            name: Row(replay)
            for name, replay in Pipeline(Path(scratch)).replays()
            if name in (asked.only or [name])
        }
        _try_cases(rows, asked.cases, asked.minutes, random.Random(asked.seed))
    print(f"\n{'command':12}{'events':>8}{'tried':>8}{'failed':>8}")
    for name, row in rows.items():
        print(f"{name:12}{row.replay.events:8}{row.tried:8}{row.failed:8}")
    tried, failed = (
        sum(row.tried for row in rows.values()),
        sum(row.failed for row in rows.values()),
    )
    print(f"{'all':12}{'':8}{tried:8}{failed:8}")
    return 1 if failed else 0


def _try_cases(
    rows: dict[str, Row], cases: int | None, minutes: float, chance: random.Random
) -> None:
    ends = time.monotonic() + 60 * minutes
    for row in cycle(rows.values()):
        if (cases is None and time.monotonic() > ends) or (
            cases is not None and row.tried >= cases
        ):
            return
        case = chance.choice(row.replay.cases())
        found = row.replay.failures(case)
        row.tried += 1
        row.failed += bool(found)
        for failure in found:
            print(failure, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--cases", type=int, help="of each command, in place of a time")
    parser.add_argument("--only", action="append", choices=[*STAGES, "rm", "gc"], help="repeatable")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--scratch", type=Path, help="where the scratch folder is made; a tmpfs makes it faster"
    )
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
