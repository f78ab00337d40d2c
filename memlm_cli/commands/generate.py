"""`memlm generate`."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from memlm_cli.console import answer, answer_part, say
from memlm_cli.inspection_text import memory_lines, place_of, shown, source_line, text_around
from memlm_cli.options import Asked, OptionsOf, ReadArgument, ReadOptions
from stages.numbers import number

if TYPE_CHECKING:
    from stages.generation import GenerationRequest
    from stages.generation.generate import GeneratedToken
    from stages.inspection.reading import MemoryReader
    from stages.text.excerpt import TextStream


def generate(
    source: ReadArgument = None,
    *,
    wanted: Annotated["GenerationRequest", OptionsOf("stages.generation:GenerationRequest")],
    reading: ReadOptions,
    asked: Asked,
) -> None:
    """Write text with a model and its memories; stdout gets only the text, token by token."""
    from memlm_cli.arguments import read_question, require_text
    from stages.generation.generate import generate as written_tokens
    from stages.generation.generate import open_writer
    from stages.inspection.settings import Request

    require_text("--prompt", wanted.prompt)
    opened = asked.open_store()
    request = Request(source=read_question(source, reading.report, opened), **dict(reading))
    reader = open_writer(request, opened, wanted.draft)
    for line in memory_lines(reader.memories):
        say(f"generate: {line}")
    _write(reader, written_tokens(reader, wanted), wanted, asked.json)


def _write(
    reader: "MemoryReader", tokens: Iterator["GeneratedToken"], wanted: "GenerationRequest", as_json: bool
) -> None:
    """Write the text as it is generated, then its sources; or everything as one JSON object."""
    from stages.text.excerpt import TextStream

    text = TextStream(reader.text)
    generated: list[GeneratedToken] = []
    if as_json:
        generated = list(tokens)
        pieces = [text.add(token.id) for token in generated]
        answer(json.dumps(_object(reader, wanted.prompt, "".join(pieces) + text.end(), generated)))
    elif _stream_tokens(text, tokens, generated):
        for token in generated:
            if token.attributed is not None:
                answer(_attributed(reader, token))
    if wanted.draft != "none" and generated:
        written, right = len(generated), sum(token.drafted for token in generated)
        say(f"generate: {right} of {written} tokens were drafted: {written / max(1, written - right):.1f} a reading")


def _stream_tokens(text: "TextStream", tokens: Iterator["GeneratedToken"], generated: list["GeneratedToken"]) -> bool:
    """Write tokens as they come, note them in `generated`, and end the last line; returns whether anyone reads."""
    try:
        for token in tokens:
            generated.append(token)
            if not answer_part(text.add(token.id)):
                return False
    except KeyboardInterrupt:
        answer_part("\n")
        raise
    return answer_part(text.end() + "\n")


def _object(reader: "MemoryReader", prompt: str, text: str, generated: list["GeneratedToken"]) -> dict[str, Any]:
    from stages.inspection.contexts import named

    memory = reader.range_reader.hidden_memory
    tokens = [{"text": reader.text.label(token.id)} | asdict(token) for token in generated]
    for token in tokens:
        if token["attributed"] is not None:
            token["attributed"] = named(token["attributed"], None if memory is None else memory.name)
    return {
        "model": reader.read["model"].reference,
        "prompt": prompt,
        "text": text,
        "memories": reader.memories,
        "tokens": tokens,
    }


def _attributed(reader: "MemoryReader", token: "GeneratedToken") -> str:
    """A token with its probability and the memories behind it; below, the contexts with most weight."""
    from stages.retrieval.hyperparameters import memory_words

    assert token.attributed is not None
    given, label = token.attributed.memories, reader.text.label(token.id)
    parts = [f"model {number(max(0.0, token.probability - sum(given)))}"]
    words = memory_words(memory["sources"] for memory in reader.memories)
    parts += [f"{word} {number(value)}" for word, value in zip(words, given, strict=True)]
    head = f"\n{shown(label)}  {number(token.probability)} = {' + '.join(parts)}"
    contexts = [f"  {number(one.carried):>9}  {source_line(one)}" for one in token.attributed.contexts]
    memory = reader.range_reader.hidden_memory
    entering = "" if memory is None else memory.name
    contexts += [
        f"  {entering:>9}  {place_of(one.source)}: {text_around(one.source)}" for one in token.attributed.entered
    ]
    return "\n".join([head, *contexts])
