"""`update-datastore --receipt`: what held the documents that were forgotten, and what remains."""

from pathlib import Path
from typing import Any

from memlm_cli.console import say
from memlm_cli.progress import ConsoleReporter
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.forgetting.receipt import receipt_of, require_receipt_file

COMMAND = "update-datastore"


def require_receipt(path: Path, config: Any) -> None:
    """Check `--receipt` before a stage begins; `config`: its settings.

    Raises: UsageError if nothing is forgotten, or if the file may not be written.
    """
    if not config.forget:
        raise UsageError("--receipt is of documents that are forgotten: name some with --forget.")
    require_receipt_file(path)


def write_receipt(path: Path, datastore: Artifact, store: Store) -> None:
    """Write the receipt of a datastore that forgot documents, and say what remains."""
    with ConsoleReporter(COMMAND) as reporter:
        receipt = receipt_of(datastore, store, reporter)
    receipt.write(path)
    holders = {holding.reference for holding in receipt.checks[-1].remains}
    verb = "artifact still holds" if len(holders) == 1 else "artifacts still hold"
    say(
        f"{COMMAND}: wrote {path}; {len(holders):,} {verb} what was forgotten. "
        f"When they are removed: memlm artifacts holds --receipt {path}"
    )
