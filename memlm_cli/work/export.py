"""Work of `memlm export`."""

import json
import shlex
from pathlib import Path

from memlm_cli.arguments import read_reference
from memlm_cli.console import answer, say
from memlm_cli.options import StoreOptions
from stages.export.export import check_export_folder
from stages.export.export import export as exported


def export(
    model: str | None, *, output: Path, positions: int | None, store_options: StoreOptions
) -> None:
    """Carry out `memlm export`."""
    # Before the model is loaded: a folder that memlm did not write is never overwritten.
    check_export_folder(output)
    result = exported(
        store_options.open_store().get(read_reference(model), "model"), output, positions
    )
    fields = {"path": str(output), "architecture": result.form.architecture, "files": result.files}
    answer(json.dumps(fields) if store_options.json else str(output))
    say(
        f"export: {result.form.architecture}; to the hub: {shlex.join(['hf', 'upload', 'NAME', str(output)])}"
    )
