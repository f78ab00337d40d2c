"""The test suite as one line of JSON: `python -m tests.gpu.suite --seconds 500 [FILES…]`."""

import argparse
import json
import re
import subprocess
import sys
import time

COUNTED = ("passed", "failed", "skipped")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seconds", type=int, default=500, help="after which the tests are stopped")
    given = parser.parse_args()
    began = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "--maxprocesses", "16", *given.files]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=given.seconds)
        last = ended.stdout
    except subprocess.TimeoutExpired as stopped:
        last = (stopped.stdout or b"").decode()
    print(last, file=sys.stderr)
    print(json.dumps({**counts(last), "seconds": round(time.perf_counter() - began)}))


def counts(output: str) -> dict[str, int]:
    """Tests by outcome, as pytest's last line counts them; 0 where it does not.

    >>> counts("= 2 failed, 6,300 passed, 33 skipped in 9:01 =".replace(",300", "300"))
    {'passed': 6300, 'failed': 2, 'skipped': 33}
    """
    return {name: int(found[-1]) if (found := re.findall(rf"(\d+) {name}", output)) else 0 for name in COUNTED}


if __name__ == "__main__":
    main()
