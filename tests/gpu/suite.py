"""The test suite as one line of JSON: `python -m tests.gpu.suite --seconds 500 [FILES…]`."""

import argparse
import json
import re
import signal
import subprocess
import sys
import time

COUNTED = ("passed", "failed", "skipped")
GRACE = 20
"""Seconds in which pytest counts what it did, once it is stopped."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument(
        "--seconds", type=int, default=500, help="after which the tests are stopped"
    )
    parser.add_argument("--processes", default="auto")
    given = parser.parse_args()
    began = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        given.processes,
        "--maxprocesses",
        "16",
        *given.files,
    ]
    output, stopped = ran(command, given.seconds)
    print(output, file=sys.stderr)
    found = counts(output)
    print(json.dumps({**found, "stopped": stopped, "seconds": round(time.perf_counter() - began)}))
    return 0 if found["passed"] or found["failed"] else 1


def ran(command: list[str], seconds: float) -> tuple[str, bool]:
    """What a command printed, and whether it was interrupted since time was over; pytest then
    counts what it did.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        return process.communicate(timeout=seconds)[0], False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=GRACE)[0], True
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0], True


def counts(output: str) -> dict[str, int]:
    """Tests by outcome, as pytest's last line counts them; 0 where it does not.

    >>> counts("= 2 failed, 6,300 passed, 33 skipped in 9:01 =".replace(",300", "300"))
    {'passed': 6300, 'failed': 2, 'skipped': 33}
    """
    return {
        name: int(found[-1]) if (found := re.findall(rf"(\d+) {name}", output)) else 0
        for name in COUNTED
    }


if __name__ == "__main__":
    sys.exit(main())
