"""Work of `memlm export`."""

import json
import shlex
from pathlib import Path

from memlm_cli.arguments import read_reference
from memlm_cli.console import answer, say
from memlm_cli.options import Asked
from stages.export.export import check_export_folder
from stages.export.export import export as exported


def export(model: str | None, *, output: Path, positions: int | None, asked: Asked) -> None:
    """Carry out `memlm export`."""
    # Before the model is loaded: a folder that memlm did not write is never overwritten.
    check_export_folder(output)
    found = exported(asked.open_store().get(read_reference(model), "model"), output, positions)
    fields = {"path": str(output), "architecture": found.form.architecture, "files": found.files}
    answer(json.dumps(fields) if asked.json else str(output))
    say(
        f"export: {found.form.architecture}; to the hub: {shlex.join(['hf', 'upload', 'NAME', str(output)])}"
    )
