"""A few attacks of the campaign in every run of the tests; all of it: `python -m
tests.endurance.campaign`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SURVIVED = [
    "kill",
    "file-limit",
    "damaged-file",
    "damaged-name",
    "bad-text",
    "concurrent-same",
    "remove-elsewhere",
    "changed-index",
    "bad-request",
]
"""Attacks of which every case of this seed is refused or harmless."""


@pytest.mark.endurance
@pytest.mark.timeout(300)
def test_a_short_campaign_finds_nothing() -> None:
    only = [part for name in SURVIVED for part in ("--only", name)]
    command = [
        sys.executable,
        "-m",
        "tests.endurance.campaign",
        "--seed",
        "0",
        "--cases",
        "2",
        *only,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stdout + done.stderr
