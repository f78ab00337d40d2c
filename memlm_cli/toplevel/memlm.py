"""memlm in notebooks and scripts: `import memlm`. See `docs/how-to/notebook.md`."""

from memlm_cli.notebook import *  # noqa: F403
from memlm_cli.notebook import __all__ as __all__
