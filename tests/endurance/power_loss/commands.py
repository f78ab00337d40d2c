"""Commands of memlm as steps of a replay, called in this process."""

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from memlm_cli.app import main
from tests.endurance.power_loss.replay import Step


def command(arguments: Sequence[str], *, gone_is_fine: bool = False) -> Step:
    """A command in the folder that the step gets.

    Args:
        arguments: what stands behind `memlm`.
        gone_is_fine: whether code 4 will do: what is removed may have been removed by the time of
        the power loss.
    """

    def step(folder: Path) -> None:
        said = io.StringIO()
        with _inside(folder), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(list(arguments))
        if code != 0 and not (gone_is_fine and code == 4):
            raise RuntimeError(f"memlm {' '.join(arguments)} ended with {code}: {said.getvalue()}")

    return step


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = os.environ.get("MEMLM_STORE")
    os.environ["MEMLM_STORE"] = "store"
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.pop("MEMLM_STORE")
        if before is not None:
            os.environ["MEMLM_STORE"] = before
