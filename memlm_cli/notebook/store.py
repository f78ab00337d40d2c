"""The store, all stages by their commands, and models with memories that read and write texts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlm_cli.notebook.artifacts import (
    Artifact,
    Columns,
    Page,
    columns,
    plain,
)
from memlm_cli.notebook.artifacts import reference as reference_of
from memlm_cli.notebook.artifacts import text as text_of
from memlm_cli.progress import ConsoleReporter
from stages.arguments import count
from stages.artifacts.kinds import KINDS
from stages.errors import UsageError, did_you_mean
from stages.registry import load

if TYPE_CHECKING:
    import numpy as np

    from stages.artifacts.artifact import Artifact as Stored
    from stages.artifacts.store import Store as Folder
    from stages.generation.generate import GenerationStep
    from stages.inspection.inspect import Inspected, TokenView
    from stages.inspection.reading import MemoryReader
    from stages.inspection.request import Request, Resolved


class Reader:
    """A model with its memories, loaded at the first reading; the first writing loads it again with
    other windows.
    """

    def __init__(self, store: "Folder", request: "Request") -> None:
        from stages.inspection.request import find

        self._store, self._request = store, request
        self._found: Resolved = find(request, store, None)

    def __repr__(self) -> str:
        model, *others = (
            f"{artifact.reference}"
            for role, artifact in self._found.read.items()
            if role != "tokens"
        )
        return f"<memlm reader of {model}{' with ' if others else ''}{', '.join(others)}>"

    def score(self, text: str) -> "Scores":
        """Score a text from its first token on, as `memlm inspect --text` does."""
        return Scores(self.inspected(text, 0), self, text)

    def distributions(self, text: str) -> "np.ndarray":
        """Log-probabilities of the whole vocabulary before each token of a text, with all memories.

        Returns: float32 [tokens, vocabulary], in nats; a row for each token of `score`.
        """
        from stages.inspection.reading import text_distributions

        text_of(text, "text")
        loaded = self.loaded
        with ConsoleReporter("score", soon=True):
            return text_distributions(loaded, loaded.text.ids(text))

    def inspected(self, text: str, contexts: int) -> "Inspected":
        """A text token by token, each with up to `contexts` of its retrieved contexts."""
        from stages.inspection.inspect import inspect_passage

        text_of(text, "text")
        loaded = self.loaded
        with ConsoleReporter("score", soon=True):
            return inspect_passage(loaded, text, contexts)

    def generate(self, prompt: str | Sequence[str] = "", **options: Any) -> Any:
        """Generate text after a prompt, or a list of texts after several; options are those of
        `parts`.

        Several are written together, `batch_size` at a time, and each is what it is alone.
        """
        with ConsoleReporter("generate", soon=True):
            if isinstance(prompt, str):
                return "".join(self.parts(prompt, **options))
            texts = dict(self.texts(prompt, **options))
            return [texts[number] for number in range(len(texts))]

    def parts(self, prompt: str = "", **options: Any) -> Iterator[str]:
        """Generate text after a prompt, and yield it token by token.

        Args:
            options: `max_tokens`, `temperature`, `top_k`, `top_p`, `seed`, `stop`, `stop_at_eos`,
            `chat`, as of `memlm generate`.
        """
        for step in self._steps([prompt], options):
            for token in step.tokens:
                yield token.text
            yield step.rest

    def texts(self, prompts: Sequence[str], **options: Any) -> Iterator[tuple[int, str]]:
        """Generate texts after several prompts; yield each with its number when it ends."""
        texts = [""] * len(prompts)
        for step in self._steps(prompts, options):
            texts[step.number] += "".join(token.text for token in step.tokens) + step.rest
            if step.ended is not None:
                yield step.number, texts[step.number]

    def _steps(
        self, prompts: Sequence[str], options: Mapping[str, Any]
    ) -> "Iterator[GenerationStep]":
        """Steps of the texts after some prompts."""
        from stages.generation import GenerationRequest
        from stages.generation.generate import generate_each, prompt_ids
        from stages.validation import validated

        for prompt in prompts:
            text_of(prompt, "prompt")
        wanted = validated(GenerationRequest, dict(options))
        ids = [
            prompt_ids(self._writer, wanted.model_copy(update={"prompt": prompt}))
            for prompt in prompts
        ]
        return generate_each(self._writer, ids, wanted)

    @property
    def memories(self) -> list[dict[str, Any]]:
        """The readings with their hyperparameters."""
        return self.loaded.memories

    @cached_property
    def loaded(self) -> "MemoryReader":
        """The reader that scores texts."""
        with ConsoleReporter("read", soon=True):
            from stages.inspection.reading import load_reader

            return load_reader(self._found, self._request)

    @cached_property
    def _writer(self) -> "MemoryReader":
        with ConsoleReporter("read", soon=True):
            from stages.generation.generate import open_writer

            return open_writer(self._request, self._store)


class Scores(dict[str, "np.ndarray"]):
    """A text token by token: `id`, `token`, `logp`, `logp_lm` (nats; with all memories, and by the
    model), `gain`.

    Measurements of probes are further columns.
    """

    def __init__(self, found: "Inspected", reader: Reader, text: str) -> None:
        super().__init__(columns([_scored(token) for token in found.tokens]))
        self._reader, self._text = reader, text

    def neighbors(self, k: int = 8) -> Columns:
        """The k contexts with the largest share in the prediction of each token, by descending
        weight.

        Columns: `position` of the token, `rank`, `weight` within the reading's memory, `carried`
        (what it adds to the probability of the token it holds), `right` (whether that is the token
        that came), `split`, `row`, `document`, and the text `before` it, `next`, `after`.
        """
        found = self._reader.inspected(self._text, count(k, "k"))
        return columns(
            [
                {
                    "position": token.position,
                    "rank": rank,
                    "weight": context.weight,
                    "carried": context.carried,
                    "right": context.right,
                    "split": context.source.split,
                    "row": context.source.row,
                    "document": context.source.name or str(context.source.document),
                    "before": context.source.before,
                    "next": context.source.token,
                    "after": context.source.after,
                }
                for token in found.tokens
                for rank, context in enumerate(token.contexts)
            ]
        )

    def page(self) -> Page:
        """The page of `memlm inspect --html`; a notebook shows it."""
        from stages.inspection.page import page

        return Page(page(self._reader.inspected(self._text, 4)))

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()


def _scored(token: "TokenView") -> dict[str, Any]:
    from math import log

    logp, logp_lm = (log(p) if p > 0 else -float("inf") for p in (token.final, token.model))
    own = {
        "id": token.id,
        "token": token.text or token.label,
        "logp": logp,
        "logp_lm": logp_lm,
        "gain": token.gain,
    }
    return own | token.columns


def open(path: str | Path | None = None) -> "Store":
    """A store; None: as for commands `$MEMLM_STORE`, else `memlm-store`; it may be missing."""
    from memlm_cli.run_command import default_store

    return Store(path or default_store())


def run(
    command: str, *sources: "str | Path | Artifact", store: "Store | None" = None, **settings: Any
) -> "Artifact":
    """Make, or find, the artifact of `memlm COMMAND SOURCES…`: the same id, lock, and resume.

    Args:
        command: of a stage (`build-datastore`).
        sources: its argument: an artifact, its reference, or files.
        store: where artifacts are; None: that of the first source, else as `open()`.
        settings: options of the command, with `_` for `-` (`batch_tokens=512`, `train=["a.txt"]`,
            `name="small"`); any other name is a setting (`index="flat"`, `optimizer={"lr": 1e-3}`).
    Raises: the errors of the exit codes.
    """
    found = (
        store
        or next((source.store for source in sources if isinstance(source, Artifact)), None)
        or open()
    )
    return found.run(command, *sources, **settings)


class Store:
    """A folder of artifacts."""

    def __init__(self, path: str | Path) -> None:
        from stages.artifacts.store import Store as Folder

        self._folder: Folder = Folder(Path(path))

    def __repr__(self) -> str:
        return f"memlm.open({str(self.path)!r})"

    @property
    def path(self) -> Path:
        return self._folder.root

    def __getitem__(self, reference: str) -> "Artifact":
        """The artifact of `kind/id`, `kind/name` or a path, with its files checked."""
        with ConsoleReporter("open", soon=True):
            return _of_kind(self, self._folder.get(reference_of(reference)))

    def list(self, *kinds: str) -> Sequence[Artifact]:
        """Its artifacts in the order of the pipeline, oldest first; `kinds`: only these.

        Raises: UsageError for a kind that does not exist.
        """
        for kind in kinds:
            if kind not in KINDS:
                raise UsageError(f"There is no kind {kind!r}; {did_you_mean(kind, KINDS)}")
        return [_of_kind(self, stored) for stored in self._folder.artifacts(*kinds)]

    def run(self, command: str, *sources: "str | Path | Artifact", **settings: Any) -> "Artifact":
        """Same as `memlm.run`, in this store."""
        from memlm_cli.run_command import run_command

        words = [
            source.reference if isinstance(source, Artifact) else str(source) for source in sources
        ]
        given = {name: plain(value) for name, value in settings.items()}
        with ConsoleReporter(command, soon=True):
            return _of_kind(self, run_command(command, words, {"store": self.path, **given}))

    def read(
        self,
        source: "str | Artifact",
        *,
        report: "str | Artifact | None" = None,
        memory: str | Sequence[str] | None = None,
        **settings: Any,
    ) -> "Reader":
        """A model with its memories, for texts.

        Args:
            source: a model, an index or neighbors.
            report: an evaluation whose memories and windows are taken.
            memory: readings in its place, as after `--memory`; "none": the model alone. Neither:
            defaults.
            settings: other options of `memlm inspect`, with `_` for `-` (`index`, `context`,
            `device`).
        """
        from stages.inspection.settings import Request
        from stages.validation import validated

        given = {name: plain(value) for name, value in settings.items()}
        given |= {
            "source": reference_of(source, "source"),
            "memory": (memory,) if isinstance(memory, str) else memory,
        }
        given["report"] = None if report is None else reference_of(report, "report")
        request = validated(Request, given)
        with ConsoleReporter("read", soon=True):
            return Reader(self._folder, request)


def _of_kind(store: Store, stored: "Stored") -> Artifact:
    kind = KINDS[stored.kind]
    opened = load(kind.notebook) if kind.notebook else Artifact
    return opened(store, stored)
