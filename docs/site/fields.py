"""The page of fields that JSON files hold, from the tables beside the code that writes them."""

import sys
from pathlib import Path

from settings import escaped

ROOT = Path(__file__).resolve().parents[2]
HEAD = """# Fields

The files are described in [artifacts on disk](reference/artifacts.md).
"""


def fields() -> str:
    """The page."""
    sys.path.insert(0, str(ROOT))
    from stages.comparison import settings as comparison
    from stages.reports import fields as report

    parts = {"metrics.json of a report": report, "The JSON of a comparison": comparison}
    return "\n".join(
        [HEAD, *(_part(title, part.__name__, part.FIELDS) for title, part in parts.items())]
    )


def _part(title: str, module: str, meanings: dict[str, str]) -> str:
    """A table, which links to the module lead to."""
    rows = [f"| `{name}` | {escaped(meaning)} |" for name, meaning in meanings.items()]
    return "\n".join(
        [f"({module.replace('.', '/')})=", f"## {title}\n", "| field | |\n|---|---|", *rows, ""]
    )
