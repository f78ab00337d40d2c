"""Inspection of a passage, token by token: the sources of each probability, and the contexts behind
it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.evaluation.score_range import score_range
from stages.inspection.contexts import (
    Context,
    Contexts,
    EnteredContext,
    EnteredContexts,
    LookedUpContext,
    LookUps,
    named,
)
from stages.inspection.reading import MemoryReader, load_reader
from stages.inspection.request import PASSAGE, Passage, Request, find
from stages.lineage.corpus import token_text
from stages.models.config import model_of
from stages.numbers import joined
from stages.retrieval.book_input import BOOK
from stages.retrieval.hyperparameters import memory_words
from stages.retrieval.scored_range import ScoredRange
from stages.text.excerpt import Excerpt, SplitText


@dataclass(frozen=True)
class MemoryView:
    """Contribution of one reading to a token: its own probability, and its share of the final
    distribution.
    """

    probability: float
    share: float


@dataclass(frozen=True)
class TokenView:
    """One token of a passage, and the sources of its probability.

    `model`: probability by the model alone, with the memory in its hidden states. `final`:
    probability with all memories. `gain`: log(final / model), in nats. `columns`: figures of
    probes, by name. `contexts`: entries with the largest shares of the final distribution, the
    largest first. `entered`: neighbours that entered the hidden state, the nearest first.
    `looked_up`: earlier positions that memorizing attention looked up, the largest weight first.
    """

    position: int
    id: int
    label: str
    text: str
    model: float
    final: float
    gain: float
    memories: list[MemoryView]
    columns: dict[str, float]
    contexts: list[Context]
    entered: list[EnteredContext]
    looked_up: list[LookedUpContext] = field(default_factory=list)


@dataclass(frozen=True)
class PassageView:
    """A passage of an open book before tokens [start, stop): its number and score, its first token
    with the place in the book, and its text.
    """

    start: int
    stop: int
    number: int
    score: float
    source: Excerpt
    text: str


@dataclass(frozen=True)
class Inspected:
    """A passage of a split, or a given text, as a model with its memories reads it.

    `hidden_memory`: name of the memory in the hidden states, if any. `looks_up`: whether attention
    looks up positions. `passages`: those of an open book, stride by stride.
    """

    model: str
    split: str
    start: int
    memories: list[dict[str, Any]]
    tokens: list[TokenView]
    hidden_memory: str | None = None
    looks_up: bool = False
    passages: list[PassageView] = field(default_factory=list)

    @property
    def memory_words(self) -> list[str]:
        """Names of the memories: `datastore`, `cache`."""
        return memory_words(memory["sources"] for memory in self.memories)

    @property
    def shares_line(self) -> str | None:
        """Explanation of the memories' shares in the table; None for a model without memories."""
        match self.memory_words:
            case []:
                return None
            case [word]:
                return f"share of {word}: of the final probabilities; the rest is the model's"
            case words:
                return (
                    f"share of {joined(words)}: of the final probabilities, the rest is the model's; memories are read "
                    "in turn, and each leaves what was before it 1 - its lambda, so the share of earlier ones is below "
                    "their own lambda"
                )

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON; figures of probes, and entered neighbours, have their own names.

        `looked_up` is left out for a model that looks up nothing, `passages` without a book.
        """
        found = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("hidden_memory", "looks_up")
        }
        found["tokens"] = [
            named(token | token.pop("columns"), self.hidden_memory) for token in found["tokens"]
        ]
        for token in [] if self.looks_up else found["tokens"]:
            del token["looked_up"]
        if not self.passages:
            del found["passages"]
        return found


def inspect_text(request: Request, store: Store, text: str, contexts: int) -> Inspected:
    """Read a text after a single `<eos>`; neighbours are searched for.

    Args:
        contexts: maximum number of contexts for a token.
    Raises: UsageError if the text has no token, or the model cannot read a text without its source.
    """
    resolved = find(request, store, None)
    if model_of(resolved.read["model"]).reads.source:
        raise UsageError(
            f"{resolved.read['model'].reference} translates, and reads no text without its source: inspect pairs of a "
            "split (--position N), or use memlm translate --attribute."
        )
    _require_token(token_text(resolved.read["tokens"]).ids(text))
    return inspect_passage(load_reader(resolved, request), text, contexts)


def inspect_passage(reader: MemoryReader, text: str, contexts: int) -> Inspected:
    """Read a text, as `inspect_text` does, with a model and memories that are already loaded."""
    ids = reader.text.ids(text)
    _require_token(ids)
    return inspect_ids(reader, ids, contexts)


def inspect_ids(
    reader: MemoryReader, ids: Sequence[int], contexts: int, first: int | None = None
) -> Inspected:
    """Read the tokens of a text, at least one.

    Args:
        contexts: maximum number of contexts for a token.
        first: the input before them; None: `<eos>`.
    """
    passage = Passage(ids)
    reading = reader.of_passage(passage, first)
    return _inspected(reading, PASSAGE, passage, 0, len(ids), contexts)


def _require_token(ids: list[int]) -> None:
    if not ids:
        raise UsageError("--text has no token that could be read.")


def inspect_split(
    request: Request, store: Store, split: str, position: int, length: int, contexts: int
) -> Inspected:
    """Read tokens `position` to `position + length` of a split as an evaluation does, with
    everything before them.

    Raises: UsageError if there is no such token.
    """
    (inspected,) = inspect_passages(
        request, store, split, [(position, position + length)], contexts
    )
    return inspected


def inspect_passages(
    request: Request, store: Store, split: str, passages: Sequence[tuple[int, int]], contexts: int
) -> Iterator[Inspected]:
    """Read passages [start, stop) of a split with one model, cut at the end of the split; see
    `inspect_split`.
    """
    resolved = find(request, store, split)
    tokens = resolved.read["tokens"]
    total = int(tokens.metrics["splits"][split]["tokens"])
    for start, _ in passages:
        if not 0 <= start < total:
            raise UsageError(
                f"--position {start} is not in {split}, which has tokens 0 to {total - 1}."
            )
    group = tokens.zarr("tokens.zarr")
    reader = load_reader(resolved, request)
    for start, stop in passages:
        yield _inspected(reader, split, group, start, min(stop, total), contexts)


def _inspected(
    reader: MemoryReader, split: str, arrays: Any, start: int, stop: int, max_passages: int
) -> Inspected:
    """Inspect tokens [start, stop) of a split whose arrays these are."""
    carried = reader.carried(split, start)
    with LookUps(reader.range_reader.model) as look_ups:
        result = reader.read_range(split, start, stop, carried, probed=True)
    scores = score_range(
        reader.range_reader, result, [] if reader.policy is None else [reader.policy]
    )
    ids = scores.targets.tolist()
    here = SplitText.of(arrays, split, reader.text)
    read = _read_memory(reader, result.scored_range, here, max_passages)
    near = EnteredContexts(reader).read(split, start, ids)
    looked_up = look_ups.read(start, arrays[f"{split}/ids"], len(ids), here, max_passages)
    views = []
    for row, (id, text, (shares, contexts)) in enumerate(
        zip(ids, reader.text.pieces(ids), read, strict=True)
    ):
        model = scores.alone.log_p[row]
        final = scores.final.log_p[row]
        alone = scores.final.columns["log_p_mem"][row] if scores.rows else ()
        columns = [
            column
            for observation in scores.observations.values()
            for column in observation.columns.items()
        ]
        views.append(
            TokenView(
                position=start + row,
                id=id,
                label=reader.text.label(id),
                text=text,
                model=_probability(model),
                final=_probability(final),
                gain=float(final - model),
                memories=[
                    MemoryView(_probability(one), share)
                    for one, share in zip(alone, shares, strict=True)
                ],
                columns={name: float(column[row]) for name, column in columns},
                contexts=contexts,
                entered=near[row][:max_passages],
                looked_up=looked_up[row],
            )
        )
    memory = reader.range_reader.hidden_memory
    entering = None if memory is None else memory.name
    return Inspected(
        reader.read["model"].reference,
        split,
        start,
        reader.memories,
        views,
        entering,
        look_ups.any,
        _passages(reader, split, start, stop),
    )


def _passages(reader: MemoryReader, split: str, start: int, stop: int) -> list[PassageView]:
    """The passages of an open book before tokens [start, stop) of a split; none without a book."""
    passages = reader.range_reader.split_reader.quoted(split, start, stop)
    if not passages:
        return []
    text = reader.text_of(BOOK.role)
    views = []
    for passage in passages:
        source = text.at(passage.begin)
        quoted = "".join(text.pieces(passage.begin, passage.end))
        view = PassageView(
            passage.start, passage.stop, passage.number, passage.score, source, quoted
        )
        views.append(view)
    return views


def _read_memory(
    reader: MemoryReader, scored_range: ScoredRange, here: SplitText, max_contexts: int
) -> Iterator[tuple[list[float], list[Context]]]:
    """For each token, every memory's share of the final distribution, and the contexts with the
    largest shares.
    """
    scored = scored_range.lm
    contexts = Contexts(reader)
    place = 0
    for shares, entries in reader.read_entries(scored_range):
        for row, parts in enumerate(shares.memories.tolist()):
            yield (
                parts,
                contexts.best(
                    entries,
                    row,
                    int(scored.targets[place]),
                    scored.start + place,
                    here,
                    max_contexts,
                ),
            )
            place += 1
    yield from (([], []) for _ in range(len(scored) - place))


def _probability(log_p: Tensor) -> float:
    return float(log_p.double().exp())
