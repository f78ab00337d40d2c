"""Stage update-datastore: datastore -> datastore, with documents added and others forgotten.

Rows that stay are copied; `stages.updating.work` does it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.artifacts.kinds import ADDED, PREVIOUS
from stages.artifacts.stage import Execution, Inputs, Stage
from stages.artifacts.store import Store
from stages.encoding.stored_rows import UPDATED
from stages.errors import UsageError
from stages.lineage.corpus import require_same_tokenizer, require_sources, require_split
from stages.lineage.rows import DatastoreRows
from stages.lineage.sources import sources_of, tokenizer_of
from stages.models.config import model_of
from stages.models.devices import device_type, resolve_precision
from stages.updating.change import resolve_documents, spelled_numbers
from stages.updating.config import UpdateConfig, settings_of_previous

__all__ = ["UpdateConfig", "UpdateDatastore"]

FORGET = "--forget"
"""Option that names a document to forget."""


class UpdateDatastore(Stage[UpdateConfig]):
    """Makes a datastore from a previous one; roles: `encoder` (model), `previous` (datastore),
    `added` (tokens).
    """

    name = "update-datastore"
    kind = "datastore"
    Config = UpdateConfig
    schema = UPDATED

    def inputs(self, config: UpdateConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        previous = store.get(references["source"], "datastore")
        read = {"encoder": previous.input("encoder"), PREVIOUS: previous}
        if references.get("add") is None:
            if not config.forget:
                raise UsageError(
                    "Nothing to change: name tokens to --add, documents to --forget, or both."
                )
            if config.split is not None:
                raise UsageError(
                    f"--split {config.split} belongs to tokens to add: name them with --add."
                )
            return Inputs(read)
        added = store.get(references["add"], "tokens")
        split = config.split or "train"
        require_split(added, split)
        require_same_tokenizer(tokenizer_of(previous), added, read["encoder"])
        require_sources(model_of(read["encoder"]), added)
        # Exclusion hides one row of a token: with a second copy of that row, a context would find
        # itself.
        if any(source.is_split(added, split) for source in sources_of(previous)):
            raise UsageError(
                f"{previous.reference} has rows of {split!r} of {added.reference} already; to add forgotten documents "
                "again, tokenize only those: "
                + added.advise("tokenize", "--tokenizer", added.reference, "--train", "FILE")
            )
        return Inputs(read | {ADDED: added})

    def resolve(self, config: UpdateConfig, inputs: Inputs, execution: Execution) -> UpdateConfig:
        rows = DatastoreRows(inputs[PREVIOUS])
        total = len(rows.doc_offsets) - 1
        forgotten = resolve_documents(config.forget, rows.named_runs, total)
        if len(forgotten) == total and ADDED not in inputs:
            raise UsageError(
                f"This would forget all of {inputs[PREVIOUS].reference}; remove it instead: "
                + inputs[PREVIOUS].advise("artifacts", "rm", inputs[PREVIOUS].reference)
            )
        return config.model_copy(
            update={
                "split": (config.split or "train") if ADDED in inputs else None,
                "forget": spelled_numbers(forgotten),
                "precision": resolve_precision(config.precision, device_type(execution.device)),
                **settings_of_previous(config, inputs),
            }
        )

    def recorded_command(self, words: Sequence[str], config: UpdateConfig) -> list[str]:
        """Words of the command, with numbers for the names of forgotten documents.

        A name may say as much about a person as the text that was to be forgotten.
        """
        recorded = list[str]()
        typed = iter(words)
        for word in typed:
            if word == FORGET:
                next(typed, None)
            else:
                recorded.append(word)

        for number in config.forget:
            recorded += [FORGET, number]
        return recorded
