"""Work of `memlm generate`: texts as they come, or records of them, and how fast it was."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memlm_cli.arguments import read_question, require_text
from memlm_cli.console import answer, answer_part, on_terminal, say
from memlm_cli.inspection_text import memory_lines, place_of, shown, source_line, text_around
from memlm_cli.options import StoreOptions
from memlm_cli.progress import ConsoleReporter
from stages.errors import UsageError
from stages.generation import GenerationRequest
from stages.generation.generate import (
    GeneratedToken,
    GenerationStep,
    generate_each,
    open_writer,
    prompt_ids,
)
from stages.generation.prompts import PromptRecord, read_prompts
from stages.inspection.contexts import named
from stages.inspection.reading import MemoryReader
from stages.inspection.settings import ReadSettings, Request
from stages.numbers import number
from stages.retrieval.hyperparameters import memory_words


def generate(
    source: str | None,
    prompts: Path | None = None,
    *,
    request: GenerationRequest,
    reading: ReadSettings,
    store_options: StoreOptions,
) -> None:
    """Carry out `memlm generate`."""
    require_text("--prompt", request.prompt)
    if prompts is not None and request.prompt:
        raise UsageError("--prompt and --prompts both say what to go on from; give one of them.")
    records = None if prompts is None else read_prompts(prompts, request.chat)
    opened = store_options.open_store()
    question = Request(source=read_question(source, reading.report, opened), **dict(reading))
    reader = open_writer(question, opened, request.draft)
    for line in memory_lines(reader.memories):
        say(f"generate: {line}")
    writing = WrittenTexts(reader, request, store_options.json)
    if records is None:
        writing.write_one(prompt_ids(reader, request))
    else:
        writing.write_all(records)
    writing.report_speed()


class WrittenTexts:
    """Writes what a request asks for, and counts it."""

    def __init__(self, reader: MemoryReader, request: GenerationRequest, as_json: bool) -> None:
        self._reader = reader
        self._request = request
        self._as_json = as_json
        self._tokens = self._drafted = 0
        self._began = time.monotonic()

    def write_one(self, ids: Sequence[int]) -> None:
        """Write one text as it comes, then its sources; or all as one JSON object."""
        steps = generate_each(self._reader, [ids], self._request)
        text = _Written()
        if self._as_json:
            for step in steps:
                text.add(step)
            record = {"prompt": self._request.prompt} | self._record(text)
            answer(json.dumps({"model": self._reader.read["model"].reference} | record))
        elif self._write_as_it_comes(steps, text):
            for token in text.tokens:
                if token.attributed is not None:
                    answer(_attributed_token(self._reader, token))
        self._count(text)

    def write_all(self, records: Sequence[PromptRecord]) -> None:
        """Write a JSON object for each prompt, in their order."""
        # All before the first text, so that a conversation without a template stops nothing later.
        prompts = [record.ids(self._reader) for record in records]
        texts = [_Written() for _ in records]
        written = 0
        with ConsoleReporter("generate") as reporter:
            for step in generate_each(self._reader, prompts, self._request):
                text = texts[step.number]
                text.add(step)
                if step.ended is None:
                    continue
                self._count(text)
                # A text may end before those of earlier prompts.
                while written < len(texts) and texts[written].ended is not None:
                    record = self._record(texts[written])
                    if not answer_part(_line(records[written].fields | record)):
                        return
                    written += 1
                speed = self._tokens / max(time.monotonic() - self._began, 1e-9)
                reporter.progress(written, len(texts), "prompts", tokens_per_second=speed)

    def report_speed(self) -> None:
        """Say on stderr how many drafts were right, and on a terminal how fast texts came."""
        if self._request.draft != "none" and self._tokens:
            readings = max(1, self._tokens - self._drafted)
            say(
                f"generate: {self._drafted} of {self._tokens} tokens were drafted: "
                f"{self._tokens / readings:.1f} a reading"
            )
        if on_terminal() and self._tokens:
            seconds = max(time.monotonic() - self._began, 1e-9)
            say(f"generate: {self._tokens:,} tokens, {self._tokens / seconds:.1f} a second")

    def _write_as_it_comes(self, steps: Iterator[GenerationStep], text: "_Written") -> bool:
        """Write pieces of a text, and end its last line; returns whether anyone reads it."""
        try:
            for step in steps:
                for piece in text.add(step):
                    if not answer_part(piece):
                        return False
        except KeyboardInterrupt:
            answer_part("\n")
            raise
        return answer_part("\n")

    def _count(self, text: "_Written") -> None:
        self._tokens += len(text.tokens)
        self._drafted += sum(token.drafted for token in text.tokens)

    def _record(self, text: "_Written") -> dict[str, Any]:
        """A text and its tokens, JSON."""
        record: dict[str, Any] = {"text": text.text, "finish_reason": text.ended}
        if self._as_json:
            tokens = [_token(self._reader, token) for token in text.tokens]
            record |= {"memories": self._reader.memories, "tokens": tokens}
        return record


class _Written:
    """One text so far."""

    def __init__(self) -> None:
        self.tokens: list[GeneratedToken] = []
        self.text = ""
        self.ended: str | None = None

    def add(self, step: GenerationStep) -> list[str]:
        """Add a step, and return the pieces of text that it brought."""
        self.tokens += step.tokens
        self.ended = step.ended
        pieces = [*(token.text for token in step.tokens), step.rest]
        self.text += "".join(pieces)
        return pieces


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def _token(reader: MemoryReader, token: GeneratedToken) -> dict[str, Any]:
    """A token with its sources, JSON."""
    memory = reader.range_reader.hidden_memory
    record = asdict(token) | {"text": reader.text.label(token.id)}
    if record["attributed"] is not None:
        record["attributed"] = named(record["attributed"], None if memory is None else memory.name)
    return record


def _attributed_token(reader: MemoryReader, token: GeneratedToken) -> str:
    """A token with its probability and the memories behind it; below, the contexts with most
    weight.
    """
    assert token.attributed is not None
    shares = token.attributed.memories
    words = memory_words(memory["sources"] for memory in reader.memories)
    parts = [f"model {number(max(0.0, token.probability - sum(shares)))}"]
    parts += [f"{word} {number(share)}" for word, share in zip(words, shares, strict=True)]
    label = reader.text.label(token.id)
    lines = [f"\n{shown(label)}  {number(token.probability)} = {' + '.join(parts)}"]

    for context in token.attributed.contexts:
        lines.append(f"  {number(context.carried):>9}  {source_line(context)}")
    memory = reader.range_reader.hidden_memory
    memory_name = "" if memory is None else memory.name
    for entered in token.attributed.entered:
        source = entered.source
        lines.append(f"  {memory_name:>9}  {place_of(source)}: {text_around(source)}")
    return "\n".join(lines)
