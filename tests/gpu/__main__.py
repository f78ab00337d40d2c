"""The GPU campaign: steps of at most nine minutes each on one GPU, ordered by what they decide.

    python -m tests.gpu.pack DATA TEXTS                   # before: the texts, to be carried to the machine
    python -m tests.gpu                                   # the steps, and which are done
    python -m tests.gpu NEXT --texts TEXTS                # run the next one
    python -m tests.gpu trime-step --texts TEXTS

A step leaves docs/results/data/gpu/STEP.toml (figures, command, commit, machine, date), and makes docs/results/gpu.md
and its charts of all that were measured. What is stopped goes on when the same step is run again: its stages resume in
the store. Nothing is fetched. `--tiny --device cpu` runs any step with models of a thousand weights.
"""

import argparse
import datetime
import platform
import subprocess
import sys
from pathlib import Path

from tests.gpu.campaign import Campaign, Unfinished, as_toml, in_a_process
from tests.gpu.page import page
from tests.gpu.steps import FULL, TINY, Step, steps

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "docs/results"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", nargs="?", help="name of a step, or NEXT; none: list them")
    parser.add_argument("--texts", type=Path, default=Path("texts"))
    parser.add_argument("--store", type=Path, default=Path("gpu-store"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes; leaves no results")
    parser.add_argument("--commit", help="what is measured, where there is no repository to ask")
    given = parser.parse_args()
    known = {step.name: step for step in steps()}
    done = {path.stem for path in (RESULTS / "data/gpu").glob("*.toml")}
    if given.step is None:
        for name, step in known.items():
            print(f"{'done' if name in done else '    '}  {name:34} {step.minutes} min  {step.asks}")
        return 0
    left = [name for name in known if name not in done]
    name = (left[0] if left else "") if given.step == "NEXT" else given.step
    if name not in known:
        parser.error("all steps are done" if not name else f"no step {name}: {', '.join(known)}")
    sizes = TINY if given.tiny else FULL
    campaign = Campaign(given.texts, given.store, given.device, sizes, in_a_process, probes=not given.tiny)
    try:
        rows = campaign.run(known[name], 60 * known[name].minutes)
    except Unfinished as stopped:
        print(f"{name}: {stopped}", file=sys.stderr)
        return 1
    for row in rows:
        print(row)
    if not given.tiny:
        keep(known[name], rows, given.device, given.commit or commit())
        subprocess.run([sys.executable, str(ROOT / "docs/site/results.py")], check=True)  # tables and charts
    return 0


def keep(step: Step, rows: list[dict[str, object]], device: str, measured: str) -> None:
    """Write the data of a step, and the page of all steps."""
    about = {
        "machine": machine(device),
        "date": datetime.date.today().isoformat(),
        "commit": measured,
        "command": f"python -m tests.gpu {step.name}",
    }
    file = RESULTS / "data/gpu" / f"{step.name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(as_toml(step, rows, about), "utf-8")
    (RESULTS / "gpu.md").write_text(page(list(steps()), {path.stem for path in file.parent.glob("*.toml")}), "utf-8")


def commit() -> str:
    """The commit that is checked out; "unknown" where there is no repository."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"


def machine(device: str) -> str:
    """The device that computed, and the versions of what it ran."""
    import torch

    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor() or "CPU"
    return f"{name}, torch {torch.__version__}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
