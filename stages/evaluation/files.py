"""Files of a report."""

import json
from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Job


def write_json(job: Job[Any], name: str, content: Mapping[str, Any]) -> None:
    """Write a file of the report; nan and infinities are errors."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    job.draft.add(name).write_text(text, encoding="utf-8")
