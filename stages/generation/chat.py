"""Conversations in the form that an imported model was trained on."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.errors import DataError, UsageError
from stages.inspection.reading import MemoryReader

Message = Mapping[str, str]
"""A message of a conversation: `role` (system, user, assistant) and `content`."""


def chat_ids(reader: MemoryReader, messages: Sequence[Message]) -> list[int]:
    """Tokens of a conversation, up to where the model answers.

    Raises: UsageError for a model that has no template; DataError for a conversation that its
        template refuses.
    """
    chat = reader.range_reader.model.config.conversations
    if chat is None:
        model = reader.read["model"].reference
        raise UsageError(
            f"{model} has no chat template: give a prompt without --chat, or to /v1/completions. "
            "Models that were imported before templates were kept, and whose tokenizer has one, "
            "are to be imported again."
        )
    return reader.text.ids(chat_text(chat.template, chat.tokens, messages))


def chat_text(template: str, tokens: Mapping[str, str], messages: Sequence[Message]) -> str:
    """Text of a conversation by a Jinja template, which runs in a sandbox of transformers.

    Args:
        tokens: special tokens that the template may name, such as `bos_token`.
    """
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    conversation = [dict(message) for message in messages]
    named: dict[str, Any] = {"add_generation_prompt": True, **tokens}
    try:
        rendered: Any = render_jinja_template([conversation], chat_template=template, **named)
    except TemplateError as error:
        raise DataError(
            f"The chat template of the model refuses the conversation: {error}"
        ) from error
    # Releases differ in whether places of the answers come with the texts.
    texts = rendered[0] if isinstance(rendered, tuple) else rendered
    return str(texts if isinstance(texts, str) else texts[0])
