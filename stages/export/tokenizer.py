"""The tokenizer of a model as transformers opens it."""

import json
from pathlib import Path
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.lineage.corpus import tokenizer_of
from stages.text.pretrained import PretrainedTokenizer
from stages.text.tokens import start_id


def write_tokenizer(tokens: Artifact, longest: int | None, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`.

    What was trained here begins a text with `<eos>`, as a split does; a pretrained tokenizer stays as it is.

    Args:
        longest: tokens that the model reads at once; None: any number.
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
