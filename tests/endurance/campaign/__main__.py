"""Attack memlm for some time, and print what became of it.

    python -m tests.endurance.campaign --minutes 60
    python -m tests.endurance.campaign --only kill --only full-disk --cases 50
    python -m tests.endurance.campaign --only kill --seed 0 --case 17        (one case again, in words)

A case is *refused* if memlm ended with 2 to 5 or 75 and a message (or, on a disk without room, with
5 and went on to the right result later), *harmless* if the result was that of a run without the
attack, and *failed* if it ended with 1, a traceback, by a signal of its own or not at all, if a
result is wrong, or if anything was lost. Ends with 1 if a case failed. Everything lies in a scratch
folder, which is removed.
"""

import argparse
import io
import os
import pickle
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.endurance.campaign import (
    changes,
    concurrent,
    crafted,
    damage,
    disks,
    drafts,
    imported,
    kills,
    options,
    recipes,
    references,
    removals,
    requests,
    texts,
)
from tests.endurance.campaign.case import Case, Verdict, failed, snapshot
from tests.endurance.campaign.process import preload
from tests.endurance.campaign.world import World

MODULES = (
    kills,
    disks,
    damage,
    drafts,
    texts,
    options,
    recipes,
    references,
    concurrent,
    crafted,
    removals,
    changes,
    imported,
    requests,
)
ATTACKS: dict[str, Callable[[Case], Verdict]] = {
    name: attack for module in MODULES for name, attack in module.ATTACKS.items()
}
COLUMNS = ("refused", "harmless", "failed", "skipped")
GOALS = {
    **{
        "kill": 1000,
        "kill-change": 100,
        "kill-installed": 10,
        "full-disk": 200,
        "full-disk-change": 30,
    },
    **{"file-limit": 60},
    **{"damaged-file": 150, "damaged-manifest": 150, "damaged-name": 100, "damaged-draft": 150},
    **{"bad-text": 300, "bad-options": 500, "bad-recipe": 150, "bad-reference": 150},
    **{"concurrent-same": 60, "concurrent-different": 50, "crafted": 250, "remove-elsewhere": 100},
    **{"changed-index": 100, "kill-recipe": 60, "kill-copy": 60, "imported-parts": 60},
    "bad-request": 60,
}
"""Cases of each attack that a whole campaign has at least; they go on in these proportions."""
DEEP = Path("a", "b", "c", "d")
"""So that a few `..` too many end inside the scratch folder."""


def attempt(
    world: World, root: Path, name: str, seed: int, number: int
) -> tuple[Verdict, list[str]]:
    """One case of an attack, in a folder that is gone afterwards; its verdict, and what was done."""
    folder = root / DEEP / "case"
    folder.mkdir(parents=True)
    case = Case(world, folder, Random(f"{name}/{seed}/{number}"))
    try:
        case.prepare()
        strangers = snapshot(folder / "strangers")
        verdict = ATTACKS[name](case)
        now = snapshot(folder / "strangers")
        lost = [Path(path).name for path, content in strangers.items() if now.get(path) != content]
        return (
            failed(f"strangers lost or changed: {', '.join(lost)}") if lost else verdict
        ), case.notes
    finally:
        shutil.rmtree(root / DEEP.parts[0])


@dataclass
class Tally:
    """What became of the cases of each attack, how long they took, and what failed."""

    counts: dict[str, Counter[str]]
    milliseconds: Counter[str] = field(default_factory=Counter)
    """Milliseconds of processors."""
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        for name, count in other.counts.items():
            self.counts[name] += count
        self.milliseconds.update(other.milliseconds)
        self.kinds.update(other.kinds)


def campaign(world: World, root: Path, asked: argparse.Namespace, worker: int) -> Tally:
    """Every `jobs`-th case, always of the attack that is furthest from its goal, until time or
    cases are spent.
    """
    names = asked.only or list(ATTACKS)
    tally = Tally({name: Counter() for name in names})
    began = time.monotonic()
    while time.monotonic() - began < asked.minutes * 60:
        numbers = {
            name: worker + asked.jobs * count.total() for name, count in tally.counts.items()
        }
        open_ = [name for name in names if numbers[name] < asked.cases]
        if not open_:
            break
        name = min(open_, key=lambda name: numbers[name] / GOALS[name])
        start = _processor_seconds()
        verdict, notes = attempt(world, root, name, asked.seed, numbers[name])
        tally.milliseconds[name] += round(1000 * (_processor_seconds() - start))
        tally.counts[name][verdict.judgement] += 1
        if verdict.judgement == "failed":
            tell(name, asked.seed, numbers[name], verdict, notes)
            tally.kinds[f"{name}: {alike(verdict.why)}"] += 1
    return tally


def in_workers(world: World, root: Path, asked: argparse.Namespace) -> Tally:
    """The campaign in so many processes, forks of this one, which has no threads."""
    results = [
        (root / f"tally-{worker}.pickle", _forked(world, root, asked, worker))
        for worker in range(asked.jobs)
    ]
    tally = Tally({name: Counter() for name in asked.only or ATTACKS})
    for file, process in results:
        os.waitpid(process, 0)
        tally.add(pickle.loads(file.read_bytes()))
    return tally


def _forked(world: World, root: Path, asked: argparse.Namespace, worker: int) -> int:
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        try:
            own = root / f"worker-{worker}"
            own.mkdir()
            (root / f"tally-{worker}.pickle").write_bytes(
                pickle.dumps(campaign(world, own, asked, worker))
            )
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(0)
    return process


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    return sum(one.ru_utime + one.ru_stime for one in used)


def tell(name: str, seed: int, number: int, verdict: Verdict, notes: list[str]) -> None:
    """A failure, and the line that tries it again."""
    print(f"FAILED {name}: {verdict.why}")
    for note in notes:
        print(f"    {note}".replace("\x1b", "\\x1b"))
    print(
        f"    python -m tests.endurance.campaign --only {name} --seed {seed} --case {number}",
        flush=True,
    )


def alike(why: str) -> str:
    """A failure without what differs between failures of one kind."""
    return re.sub(
        r"'[^']*('|$)|(?<!\w)/\S*|[0-9a-f]{12}|\d+", "…", why.partition(" This is a bug")[0]
    )[:150]


def table(tally: Tally) -> str:
    """What became of all cases, and the processors' seconds that a case takes."""
    rows: list[tuple[str, ...]] = [("attack", "goal", "tried", *COLUMNS, "seconds")]
    for name, count in tally.counts.items():
        seconds = tally.milliseconds[name] / 1000 / max(1, count.total())
        tried = str(GOALS[name]), str(count.total())
        rows.append((name, *tried, *(str(count[column]) for column in COLUMNS), f"{seconds:.2f}"))
    total = sum(tally.counts.values(), Counter())
    goals = sum(GOALS[name] for name in tally.counts)
    sums = (str(total[column]) for column in COLUMNS)
    rows.append(
        ("all", str(goals), str(total.total()), *sums, f"{tally.milliseconds.total() / 1000:.0f}")
    )
    return "\n".join(f"{row[0]:22}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--cases", type=int, default=10**9, help="at most so many of each attack")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=ATTACKS, help="repeatable; default: all")
    parser.add_argument("--case", type=int, help="try this one again")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: one a core"
    )
    asked = parser.parse_args()
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(errors="backslashreplace")
    preload()
    with tempfile.TemporaryDirectory(prefix="memlm-campaign-") as folder:
        world = World(Path(folder, "undisturbed"))
        if asked.case is not None:
            verdict, notes = attempt(
                world, Path(folder), (asked.only or list(ATTACKS))[0], asked.seed, asked.case
            )
            print("\n".join([*notes, f"{verdict.judgement} {verdict.why}"]))
            raise SystemExit(verdict.judgement == "failed")
        tally = in_workers(world, Path(folder), asked)
        print(table(tally))
        for kind, times in tally.kinds.most_common():
            print(f"{times:6} {kind}")
        raise SystemExit(any(count["failed"] for count in tally.counts.values()))


if __name__ == "__main__":
    main()
