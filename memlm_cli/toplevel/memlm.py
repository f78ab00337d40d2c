"""memlm in notebooks and scripts: `import memlm`. See `docs/how-to/notebook.md`."""

from typing import TYPE_CHECKING, Any

from memlm_cli import notebook
from memlm_cli.notebook import __all__ as __all__

if TYPE_CHECKING:
    from memlm_cli.notebook import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(notebook, name)


def __dir__() -> list[str]:
    return __all__
