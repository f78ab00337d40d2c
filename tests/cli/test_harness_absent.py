"""The harness without its package."""

import subprocess
import sys

WITHOUT = """
import runpy, sys

class Absent:
    def find_spec(name, path, target=None):
        if name == "lm_eval":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent)
runpy.run_module("memlm_cli.harness", run_name="__main__")
"""


def test_a_missing_harness_is_named_with_what_installs_it() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert "pip install" in ended.stderr and "lm-eval" in ended.stderr
