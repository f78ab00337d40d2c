"""The tokenizer of a pretrained model, read by transformers."""

from pathlib import Path
from typing import Any

from stages.errors import DataError, UsageError
from stages.models.backbones.window_configs import ChatSettings
from stages.pretrained.damage import reading
from stages.pretrained.location import TOKENIZER_FILES, Location
from stages.text.huggingface import PretrainedTokenizer, SpecialTokens, load_tokenizer

USUAL_END = "<|endoftext|>"
"""Usual end of a text, preferred because the `eos` of some models ends a turn of a dialogue."""


def read_tokenizer(location: Location, eos: str | None) -> PretrainedTokenizer:
    """The tokenizer of a folder or of a GGUF file.

    Args:
        eos: the token that ends a document; None: `<|endoftext|>` if it exists, else the
            tokenizer's own, or its separator of sentences ([SEP]).
    Raises: DataError if there is no tokenizer that can be written as JSON; UsageError if it lacks
    the token.
    """
    with reading(location, "tokenizer"):
        pretrained = load_pretrained(location)
        end = _end(pretrained, location, eos)
        # A token before every text also begins a split, and precedes every window.
        begins = pretrained.bos_token_id is not None and pretrained("a").input_ids[:1] == [
            pretrained.bos_token_id
        ]
        prefix = int(pretrained.bos_token_id) if begins else None
    return PretrainedTokenizer(
        pretrained.backend_tokenizer, SpecialTokens(end, end if prefix is None else prefix, prefix)
    )


def same_tokenizer(location: Location, special: SpecialTokens, file: Path) -> bool:
    """Whether a `tokenizer.json` of memlm equals the tokenizer of a model; True if the model has
    none.
    """
    if not location.has_tokenizer:
        return True
    with reading(location, "tokenizer"):
        backend = load_pretrained(location).backend_tokenizer
    content: str = PretrainedTokenizer(backend, special).huggingface().to_str(pretty=True)
    return content == file.read_text("utf-8")


def tokens_around(location: Location) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens that a tokenizer adds before and after a text ([CLS] and [SEP]).

    Raises: DataError if there is no tokenizer.
    """
    with reading(location, "tokenizer"):
        pretrained = load_pretrained(location)
        written, text = (
            pretrained("a", add_special_tokens=special).input_ids for special in (True, False)
        )
        first = next(i for i in range(len(written)) if written[i : i + len(text)] == text)
    return tuple(written[:first]), tuple(written[first + len(text) :])


def read_chat(location: Location) -> ChatSettings | None:
    """The chat template of a model's tokenizer; None if it has none, or no tokenizer.

    Of several templates, the one called `default` is taken.
    """
    if not location.has_tokenizer:
        return None
    with reading(location, "tokenizer"):
        tokenizer = load_pretrained(location)
        template = tokenizer.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        if template is None:
            return None
        tokens = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
        return ChatSettings(template=template, tokens=tokens)


def load_pretrained(location: Location) -> Any:
    """The tokenizer as transformers reads it. Raises: DataError if there is none that can be
    written as JSON.
    """
    from transformers import AutoTokenizer

    location.require_tokenizer()
    if location.gguf is None:
        load_tokenizer(
            location.folder / "tokenizer.json"
        )  # raises a clear error if the file itself is faulty
    with location.isolated(location.files(TOKENIZER_FILES)) as folder:
        pretrained: Any = AutoTokenizer.from_pretrained(folder, **location.loading())
    if not pretrained.is_fast:
        raise DataError(f"The tokenizer of {location.spec} cannot be written as a tokenizer.json.")
    return pretrained


def _end(pretrained: Any, location: Location, eos: str | None) -> int:
    vocabulary: dict[str, int] = pretrained.get_vocab()
    if eos is not None and eos not in vocabulary:
        raise UsageError(
            f"The tokenizer of {location.spec} has no token {eos!r}: name one that it has with --eos."
        )
    token = eos or (
        USUAL_END if USUAL_END in vocabulary else pretrained.eos_token or pretrained.sep_token
    )
    if token is None:
        raise UsageError(
            f"The tokenizer of {location.spec} does not say what ends a document: name it with --eos."
        )
    return int(vocabulary[token])
