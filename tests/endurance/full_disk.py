"""Run the pipeline on a disk that is always too small, give it a little more room each time, and
compare.

    python -m tests.endurance.full_disk [TEXT…]          (needs the right to mount a tmpfs)

Every command must end with 0 or 5 and never with a traceback; whenever it ends with 5 the disk
grows by a fifth and the same command runs again. At the end all artifacts must equal those of a run
that never lacked room.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.endurance.kill_and_resume import differences, finish, pipeline, start


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def run_with_growing_disk(disk: Path, arguments: list[str], size: int) -> tuple[str, int, int]:
    """(reference, how often the disk was full, its size at the end)."""
    for full in range(100):
        process = start(disk / "store", arguments)
        out, err = process.communicate()
        if process.returncode == 0:
            return out.strip(), full, size
        if process.returncode != 5 or "Traceback" in err:
            raise SystemExit(f"{arguments[0]} ended with {process.returncode}:\n{err}")
        print(f"  {size / 1e6:7.2f} MB: {err.strip().splitlines()[-1]}")
        size = int(size * 1.2)
        subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
    raise SystemExit("never enough room")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", default=["builtin:pydocs"])
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    wrong, size = 0, 200_000
    with tempfile.TemporaryDirectory() as folder:
        whole, disk = Path(folder, "whole"), Path(folder, "disk")
        disk.mkdir()
        references: dict[str, str] = {}
        with small_disk(disk, size):
            for kind, template in pipeline(options.texts, options.steps):
                arguments = [argument.format(**references) for argument in template]
                references[kind], _ = finish(start(whole, arguments))
                reference, full, size = run_with_growing_disk(disk, arguments, size)
                other = differences(whole / reference, disk / "store" / reference)
                wrong += bool(other)
                print(
                    f"{kind:10} full {full} times, done at {size / 1e6:.2f} MB, different: {other or 'nothing'}"
                )
    print(f"{wrong} artifacts differ")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
