"""Kill every stage of the pipeline at random moments, run it again, and compare with an
uninterrupted run.

    python -m tests.endurance.kill_and_resume --kills 20 TEXT…       (default text: builtin:pydocs)
    python -m tests.endurance.kill_and_resume --layers               models whose layers remember, trained and read

Each command runs once undisturbed in one store and, in another, is killed with SIGKILL at random
moments until the asked number of kills is spent; then the same command must finish, say `resumed: N
of M`, and leave the same bytes (times, rates and logs apart, as the contract says). Takes minutes:
run by hand, not by pytest.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stages.artifacts.checksums import UNSEALED
from stages.models import NAMED

GATE_ALONE = ["--set", "memory.only_gate=true"]
TIMED_FILES = {"training.jsonl", "metrics.json", "manifest.json"}


def pipeline(texts: list[str], steps: int) -> list[tuple[str, list[str]]]:
    """The commands in order: (name of the artifact, arguments); `{name}` stands for an earlier
    reference.
    """
    training = ["--steps", str(steps), "--checkpoint-seconds", "1"]
    return [
        (
            "tokens",
            [
                "tokenize",
                *texts,
                "--split",
                "0.8,0.1,0.1",
                "--tokenizer",
                "bpe",
                "--vocab-size",
                "2048",
            ],
        ),
        ("model", ["train", "{tokens}", *training]),
        ("datastore", ["build-datastore", "{model}"]),
        ("index", ["build-index", "{datastore}", "--index", "ivf-pq"]),
        ("neighbors", ["precompute-neighbors", "{index}", "--k", "32"]),
        ("batches", ["pack-batches", "{tokens}", "--segment-length", "16"]),
        ("report", ["evaluate", "{neighbors}", "--save-token-scores"]),
        ("xl", ["train", "{tokens}", "--backbone", "transformer-xl", *training]),
        ("spalm", ["train", "{neighbors}", "--method", "spalm", *training]),
        (
            "gate",
            [
                "train",
                "{neighbors}",
                "--method",
                "spalm",
                "--init-from",
                "{xl}",
                *GATE_ALONE,
                *training,
            ],
        ),
        ("gated", ["evaluate", "{spalm}", "--save-token-scores"]),
    ]


def of_layers(texts: list[str], steps: int) -> list[tuple[str, list[str]]]:
    """The same for a model of each attention that remembers, with product keys in its first block."""
    tokens, *_ = pipeline(texts, steps)
    training = [
        "--steps",
        str(steps),
        "--segment-length",
        "64",
        "--batch-tokens",
        "256",
        "--checkpoint-seconds",
        "1",
    ]
    keys = [
        f"model.feed_forward.{one}"
        for one in ("name=product-keys", "layers=[1]", "sub_keys=16", "neighbors=8")
    ]
    commands = [tokens]
    for name, backbone in ((backbone.split("-")[0], backbone) for backbone in NAMED):
        settings = [word for one in (*keys, "model.width=32") for word in ("--set", one)]
        commands.append((name, ["train", "{tokens}", "--backbone", backbone, *settings, *training]))
        commands.append((f"{name} read", ["evaluate", f"{{{name}}}", "--save-token-scores"]))
    return commands


def start(store: Path, arguments: list[str]) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "memlm_cli",
        *arguments,
        "--store",
        str(store),
        "--device",
        "cpu",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """(standard output, standard error) of a command that must succeed."""
    out, err = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"failed with {process.returncode}: {err}")
    return out.strip(), err


def without_times(value: Any) -> Any:
    """JSON without the fields that tell when, how fast, on what and by which words something was
    done, and without the checksum of these.
    """
    if isinstance(value, dict):
        dropped = {"files", *UNSEALED} - {"digest"}
        return {
            name: without_times(inner)
            for name, inner in value.items()
            if name not in dropped and "seconds" not in name and "per_second" not in name
        }
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


def content(folder: Path) -> dict[str, Any]:
    """Everything in an artifact that must be equal between two runs."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        relative = path.relative_to(folder).as_posix()
        if relative.startswith("logs/"):
            continue
        if path.name in TIMED_FILES:
            lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
            found[relative] = [without_times(json.loads(line)) for line in lines]
        else:
            found[relative] = path.read_bytes()
    return found


def differences(one: Path, other: Path) -> list[str]:
    a, b = content(one), content(other)
    return [name for name in sorted({*a, *b}) if a.get(name) != b.get(name)]


def kill_until_spent(
    store: Path, arguments: list[str], work: float, idle: float, kills: int
) -> int:
    """Kill a command `kills` times, each time after a random part of its share of the work.

    Args:
        work: seconds of the undisturbed command.
        idle: seconds of the same command when there is nothing to do.
    Returns: how often it was caught at work.
    """
    caught = 0
    for _ in range(kills):
        process = start(store, arguments)
        time.sleep(idle + random.uniform(0, 0.95) * max(0.5, work - idle) / kills)
        caught += process.poll() is None
        process.kill()
        process.communicate()
    return caught


def timed(store: Path, arguments: list[str]) -> tuple[str, float]:
    """(reference, seconds) of a command."""
    began = time.monotonic()
    reference, _ = finish(start(store, arguments))
    return reference, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", default=["builtin:pydocs"])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", action="store_true")
    options = parser.parse_args()
    random.seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder, "whole"), Path(folder, "killed")
        commands = (of_layers if options.layers else pipeline)(options.texts, options.steps)
        references: dict[str, str] = {}
        spent = wrong = 0
        for number, (name, template) in enumerate(commands):
            arguments = [argument.format(**references) for argument in template]
            references[name], seconds = timed(whole, arguments)
            _, idle = timed(whole, arguments)
            kills = (options.kills - spent) // (len(commands) - number)
            spent += (caught := kill_until_spent(killed, arguments, seconds, idle, kills))
            reference, err = finish(start(killed, arguments))
            resumed = next(
                (line for line in err.splitlines() if "resumed" in line),
                "cached" if "cached" in err else "-",
            )
            other = differences(whole / references[name], killed / reference)
            wrong += bool(other) or reference != references[name]
            print(
                f"{name:16} {seconds:6.1f} s  killed {caught} times  {resumed.strip():40} "
                f"different: {other or 'nothing'}"
            )
    print(f"{spent} kills, {wrong} artifacts differ")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
