"""SIGINT and SIGTERM end every command in the same way."""

import signal
import subprocess
import sys

import pytest

WORKING = """
import sys, time
from memlm_cli import app

def work(arguments):
    print("ready", flush=True)
    time.sleep(60)

app._invoke = work
sys.exit(app.main(["evaluate"]))
"""


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("signum", "code", "told"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_job_in_the_background_hears_them(signum: int, code: int, told: str) -> None:
    """A shell without job control starts `memlm … &` with SIGINT ignored."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", WORKING], preexec_fn=_ignore_interrupts, **pipes) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signum)
        assert (process.wait(30), process.stderr.read()) == (code, f"memlm evaluate: {told}.\n")
