"""A model of the store as a folder that transformers reads: weights, settings, tokenizer and card."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.export import FORMS
from stages.export.card import card
from stages.export.folder import CARD, Form, check_export_folder, new_folder
from stages.lineage.corpus import require_scoring, tokenizer_of
from stages.models.config import model_of
from stages.text.pretrained import PretrainedTokenizer
from stages.text.tokens import start_id


def write_tokenizer(tokens: Artifact, longest: int | None, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`.

    A tokenizer that was trained here begins a text with `<eos>`, as a split does. A pretrained one stays as it is.

    Args:
        longest: the most tokens that the model reads at once; None: any number.
    """
    tokenizer = tokenizer_of(tokens)
    backend = tokenizer.huggingface()
    eos = backend.id_to_token(tokenizer.eos_id)
    if not isinstance(tokenizer, PretrainedTokenizer):
        from tokenizers import processors

        backend.post_processor = processors.TemplateProcessing(
            single=f"{eos} $A", special_tokens=[(eos, tokenizer.eos_id)]
        )
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": backend.id_to_token(start_id(tokens.metrics)),
        "eos_token": eos,
        "clean_up_tokenization_spaces": False,
    }
    if tokenizer.unk_id is not None:
        settings["unk_token"] = backend.id_to_token(tokenizer.unk_id)
    if longest is not None:
        settings["model_max_length"] = longest
    (folder / "tokenizer.json").write_text(backend.to_str(pretty=True), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8")


Write = Callable[[Artifact, int | None, Path], Form]
"""A function that writes weights and settings of a model into a folder; see `FORMS`."""


@dataclass(frozen=True)
class Exported:
    """The folder of an exported model, its form, and the names of its files."""

    folder: Path
    form: Form
    files: list[str]


def export(model: Artifact, folder: Path, positions: int | None = None) -> Exported:
    """Write a model in the form that transformers reads. A memory that it reads stays in the store.

    Args:
        positions: for sinusoidal positions, how many the exported table has; None: as many as a segment has.
    Raises: UsageError if transformers has no form for the model, or the folder holds other files.
    """
    write = _form_of(model)
    check_export_folder(folder)
    with new_folder(folder) as draft:
        form = write(model, positions, draft)
        write_tokenizer(model.input("tokens"), form.longest, draft)
        (draft / CARD).write_text(card(model, form), "utf-8")
    return Exported(folder, form, sorted(path.name for path in folder.iterdir()))


def _form_of(model: Artifact) -> Write:
    """Find the writer for a model's backbone.

    Raises: UsageError or ArtifactError, with the reason, if there is none.
    """
    config = model_of(require_scoring(model))
    if config.reads_neighbors:
        raise UsageError(
            f"{model.reference} has a gate that lets neighbours' tokens in (SPALM), and no model of transformers has."
        )
    if config.backbone not in FORMS:
        raise UsageError(
            f"{model.reference} is of backbone {config.backbone!r}, and transformers has no such model; exported are: "
            f"{', '.join(FORMS.names())}."
        )
    write: Write = FORMS.load(config.backbone)
    return write
