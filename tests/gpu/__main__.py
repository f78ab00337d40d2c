"""The GPU campaign: steps of at most nine minutes each on one GPU, ordered by what they decide.

    python -m tests.gpu.pack DATA TEXTS                   # before: the texts, to be carried to the machine
    python -m tests.gpu                                   # the steps, and which are done
    python -m tests.gpu NEXT --texts TEXTS                # run the next one
    python -m tests.gpu NEXT --texts TEXTS --minutes 13   # and others after it, as long as they fit
    python -m tests.gpu trime-step --texts TEXTS
    python -m tests.gpu PAGE                              # the page again, of files from another machine

A step leaves docs/results/data/gpu/STEP.toml (figures, command, commit, machine, date), and makes
docs/results/gpu.md and its charts of all that were measured. What is stopped leaves the rows that
it has. It goes on when the same step is run again: rows of the same commit and machine are kept,
and stages resume in the store. NEXT leaves out what failed in this store at this commit. Nothing is
fetched. `--tiny --device cpu` runs any step with models of a thousand weights.
"""

import argparse
import datetime
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from stages.artifacts.durable import write_atomically
from tests.gpu.campaign import (
    CHANGED,
    UNKNOWN,
    Campaign,
    Failed,
    Part,
    Unfinished,
    as_toml,
    in_a_process,
    measured_before,
)
from tests.gpu.effects import EFFECTS, effects
from tests.gpu.page import page, tables
from tests.gpu.steps import FULL, TINY, Step, steps

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "docs/results"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", nargs="?", help="name of a step, NEXT or PAGE; none: list them")
    parser.add_argument("--texts", type=Path, default=Path("texts"))
    parser.add_argument("--store", type=Path, default=Path("gpu-store"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="of NEXT: go on while the next step fits"
    )
    parser.add_argument("--tiny", action="store_true", help="tiny sizes; leaves no results")
    parser.add_argument("--commit", help="what is measured, where there is no repository to ask")
    given = parser.parse_args()
    known = {step.name: step for step in steps()}
    if given.step == "PAGE":
        make_page()
        return 0
    commit = given.commit or checked_out()
    failed = given.store / "failed-steps" / commit
    if given.step is None:
        show(list(known.values()), names_in(failed))
        return 0
    if given.step not in (*known, "NEXT"):
        near = get_close_matches(given.step, known, n=3)
        parser.error(
            f"no step {given.step}{': did you mean ' + ', '.join(near) + '?' if near else ''}"
        )
    if missing := missing_here(given.device, given.texts):
        parser.error(missing)
    ends = time.monotonic() + 60 * given.minutes
    sizes = TINY if given.tiny else FULL
    campaign = Campaign(
        given.texts, given.store, given.device, sizes, in_a_process, probes=not given.tiny
    )
    codes = dict[str, int]()
    while True:
        step = (
            following(list(known.values()), names_in(failed), ends)
            if given.step == "NEXT"
            else known[given.step]
        )
        if step is None:
            print("no step is left that fits", file=sys.stderr)
            return max(codes.values(), default=0)
        print(f"{step.name}: {step.asks} At most {step.minutes} minutes.", file=sys.stderr)
        codes[step.name] = run(campaign, step, commit, failed, keeps=not given.tiny)
        if given.step != "NEXT" or time.monotonic() >= ends:
            return max(codes.values())


def run(campaign: Campaign, step: Step, commit: str, failed: Path, keeps: bool) -> int:
    """Run a step, show its rows, and keep them; 1 where it is not through."""
    about = {
        "machine": machine(campaign.device),
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "command": f"python -m tests.gpu {step.name}",
    }
    kept = measured_before(file_of(step), about) if keeps else {}
    runs = [campaign.name_of(one) for one in step.runs]
    parts: list[Part] = []
    code = 0
    try:
        for part in campaign.run(step, 60 * step.minutes - SPARE, kept):
            parts.append(part)
            if keeps:  # at once: whoever kills this loses one row at most
                write_atomically(file_of(step), as_toml(step, parts, about, runs[len(parts) :]))
            print(*part.rows, *part.notes, sep="\n", flush=True)
    except Unfinished as stopped:
        print(f"{step.name}: {stopped}", file=sys.stderr)
        code = 1
    except Failed as reason:
        print(f"{step.name}: {reason}", file=sys.stderr)
        write_atomically(failed, "\n".join(sorted(names_in(failed) | {step.name})))
        code = 1
    if keeps and parts:
        make_page()
    return code


SPARE = 30
"""Seconds of a step's minutes in which it starts, and makes the page."""


def make_page() -> None:
    """Write the page, its tables and charts, as far as this machine can draw."""
    measured = tables(RESULTS / "data/gpu")
    found = effects(measured)
    if found is not None:
        write_atomically(RESULTS / "data/gpu" / f"{EFFECTS}.toml", found)
    write_atomically(RESULTS / "gpu.md", page(list(steps()), measured, found is not None))
    if not draw():
        print(
            "the figures are kept; draw the page elsewhere: python -m tests.gpu PAGE",
            file=sys.stderr,
        )


def draw() -> bool:
    """Fill tables and draw charts; whether this machine can."""
    return subprocess.run([sys.executable, str(ROOT / "docs/site/results.py")]).returncode == 0


def file_of(step: Step) -> Path:
    """The file of a step's figures."""
    return RESULTS / "data/gpu" / f"{step.name}.toml"


def following(known: Sequence[Step], failed: set[str], ends: float) -> Step | None:
    """The first step that is not whole, did not fail, and fits; where no time was given each fits."""
    left = (ends - time.monotonic()) / 60
    measured = tables(RESULTS / "data/gpu")
    for step in known:
        whole = step.name in measured and not measured[step.name]["left"]
        if not whole and step.name not in failed and (left <= 0 or step.minutes <= left):
            return step
    return None


def show(known: Sequence[Step], failed: set[str]) -> None:
    """List the steps, with what became of each."""
    measured = tables(RESULTS / "data/gpu")
    for step in known:
        table = measured.get(step.name)
        state = "failed" if step.name in failed else ""
        if table is not None:
            state = f"{'part' if table['left'] else 'done'} {table['commit']}"
        print(f"{state:13} {step.name:34} {step.minutes} min  {step.asks}")


def names_in(file: Path) -> set[str]:
    """Names of steps, a line each."""
    return set(file.read_text("utf-8").split()) if file.exists() else set()


NEEDED = [
    "faiss",
    "zarr",
    "lightning_fabric",
    "rank_bm25",
    "zstandard",
    "pydantic",
    "tokenizers",
    "typer",
]
"""Packages that machines with a GPU often lack."""


def missing_here(device: str, texts: Path) -> str | None:
    """What a step would miss on this machine; None: nothing."""
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        return "PyTorch sees no GPU here; --tiny --device cpu tries a step without one"
    if lacking := [name for name in NEEDED if find_spec(name) is None]:
        return f"these packages are not installed: {', '.join(lacking)}; tests.gpu.pack says how to carry them"
    if not list(texts.glob("*-train.jsonl.xz")):
        return f"no texts in {texts}: python -m tests.gpu.pack DATA {texts} makes them"
    return None


def checked_out() -> str:
    """The commit that is checked out, with a + if files differ; "unknown" where there is no
    repository.
    """
    git = shutil.which("git")
    if git is None:
        return UNKNOWN
    asked, changed = (
        subprocess.run([git, *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        for words in (
            ("rev-parse", "--short", "HEAD"),
            ("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/results"),
        )
    )
    return f"{asked}{CHANGED if changed else ''}" if asked else UNKNOWN


def machine(device: str) -> str:
    """The device that computed, and the versions of what it ran."""
    import torch

    name = (
        torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor() or "CPU"
    )
    return f"{name}, torch {torch.__version__}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
