"""Attack memlm for some time, and print what became of it.

    python -m tests.endurance.campaign --minutes 60
    python -m tests.endurance.campaign --only kill --only full-disk --cases 50
    python -m tests.endurance.campaign --only kill --seed 0 --case 17        (one case again, in words)

A case is *refused* if memlm ended with 2 to 5 or 75 and a message (or, on a disk without room, with 5 and went on to
the right result later), *harmless* if the result was that of a run without the attack, and *failed* if it ended with 1,
a traceback, by a signal of its own or not at all, if a result is wrong, or if anything was lost. Ends with 1 if a case
failed. Everything lies in a scratch folder, which is removed.
"""

import argparse
import io
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.endurance.campaign import (
    concurrent,
    crafted,
    damage,
    disks,
    drafts,
    kills,
    options,
    recipes,
    references,
    removals,
    texts,
)
from tests.endurance.campaign.case import Case, Verdict, failed, snapshot
from tests.endurance.campaign.process import preload
from tests.endurance.campaign.world import World

MODULES = (kills, disks, damage, drafts, texts, options, recipes, references, concurrent, crafted, removals)
ATTACKS: dict[str, Callable[[Case], Verdict]] = {
    name: attack for module in MODULES for name, attack in module.ATTACKS.items()
}
COLUMNS = ("refused", "harmless", "failed", "skipped")
DEEP = Path("a", "b", "c", "d")
"""So that a few `..` too many end inside the scratch folder."""


def attempt(world: World, root: Path, name: str, seed: int, number: int) -> tuple[Verdict, list[str]]:
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
        return (failed(f"strangers lost or changed: {', '.join(lost)}") if lost else verdict), case.notes
    finally:
        shutil.rmtree(root / DEEP.parts[0])


def campaign(
    world: World, root: Path, names: list[str], seed: int, minutes: float, cases: int
) -> tuple[dict[str, Counter[str]], Counter[str]]:
    """Attack in turn, always with what had least time so far, until the time or the cases are spent.

    Returns: the judgements of each attack; the failures by what failed.
    """
    kinds: Counter[str] = Counter()
    spent = dict.fromkeys(names, 0.0)
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    began = time.monotonic()
    while time.monotonic() - began < minutes * 60:
        open_ = [name for name in names if counts[name].total() < cases]
        if not open_:
            break
        name = min(open_, key=lambda name: spent[name])
        number, start = counts[name].total(), time.monotonic()
        verdict, notes = attempt(world, root, name, seed, number)
        spent[name] += time.monotonic() - start
        counts[name][verdict.judgement] += 1
        if verdict.judgement == "failed":
            tell(name, seed, number, verdict, notes)
            kinds[f"{name}: {alike(verdict.why)}"] += 1
    return counts, kinds


def tell(name: str, seed: int, number: int, verdict: Verdict, notes: list[str]) -> None:
    """A failure, and the line that tries it again."""
    print(f"FAILED {name}: {verdict.why}")
    for note in notes:
        print(f"    {note}".replace("\x1b", "\\x1b"))
    print(f"    python -m tests.endurance.campaign --only {name} --seed {seed} --case {number}", flush=True)


def alike(why: str) -> str:
    """A failure without what differs between failures of one kind."""
    return re.sub(r"'[^']*('|$)|(?<!\w)/\S*|[0-9a-f]{12}|\d+", "…", why.partition(" This is a bug")[0])[:150]


def table(counts: dict[str, Counter[str]]) -> str:
    """What became of all cases, as a table."""
    rows: list[tuple[str, ...]] = [("attack", "tried", *COLUMNS)]
    total = sum(counts.values(), Counter())
    for name, count in [*counts.items(), ("all", total)]:
        rows.append((name, str(count.total()), *(str(count[column]) for column in COLUMNS)))
    return "\n".join(f"{row[0]:22}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--cases", type=int, default=10**9, help="at most so many of each attack")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=ATTACKS, help="repeatable; default: all")
    parser.add_argument("--case", type=int, help="try this one again")
    asked = parser.parse_args()
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(errors="backslashreplace")
    names = asked.only or list(ATTACKS)
    preload()
    with tempfile.TemporaryDirectory(prefix="memlm-campaign-") as folder:
        world = World(Path(folder, "undisturbed"))
        if asked.case is not None:
            verdict, notes = attempt(world, Path(folder), names[0], asked.seed, asked.case)
            print("\n".join([*notes, f"{verdict.judgement} {verdict.why}"]))
            raise SystemExit(verdict.judgement == "failed")
        counts, kinds = campaign(world, Path(folder), names, asked.seed, asked.minutes, asked.cases)
        print(table(counts))
        for kind, times in kinds.most_common():
            print(f"{times:6} {kind}")
        raise SystemExit(any(count["failed"] for count in counts.values()))


if __name__ == "__main__":
    main()
