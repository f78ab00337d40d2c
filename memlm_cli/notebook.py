"""memlm in Python: the store, every stage, and models with their memories, for notebooks (`import memlm`).

What is public is what `docs/notebook.md` lists, and the errors of the exit codes. Nothing here computes: a stage is run
by its command, and texts are read by what `inspect` and `generate` use.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.errors import ArtifactError, BusyError, DataError, MemlmError, ResourceError, UsageError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from stages.artifacts.artifact import Artifact as Stored
    from stages.artifacts.store import Store as Folder
    from stages.inspection.inspect import Inspected, TokenView
    from stages.inspection.reading import MemoryReader
    from stages.inspection.request import Request, Resolved

__all__ = [
    "Artifact",
    "ArtifactError",
    "BusyError",
    "DataError",
    "Datastore",
    "Index",
    "MemlmError",
    "Model",
    "Neighbors",
    "Page",
    "Reader",
    "Report",
    "ResourceError",
    "Scores",
    "Store",
    "Tokens",
    "UsageError",
    "open",
    "run",
]

Columns = dict[str, "np.ndarray"]
"""A table: arrays of one length by name, as `pandas.DataFrame` and `polars.DataFrame` take it."""


def open(path: str | Path | None = None) -> "Store":
    """A store; None: as for commands `$MEMLM_STORE`, `store` of memlm.toml, `memlm-store`; it may be missing."""
    from memlm_cli.run_command import default_store

    return Store(path or default_store())


def run(command: str, *sources: "str | Path | Artifact", store: "Store | None" = None, **settings: Any) -> "Artifact":
    """What `memlm COMMAND SOURCES…` makes, or finds: the same id, lock, and resume.

    Args:
        command: of a stage (`build-datastore`).
        sources: its argument: an artifact, its reference, or files.
        store: where artifacts are; None: that of the first source, else as `open()`.
        settings: options of the command, with `_` for `-` (`mem_length=64`, `train=["a.txt"]`, `name="small"`); any
            other name is a setting (`index="flat"`, `optimizer={"lr": 1e-3}`).
    Raises: the errors of the exit codes.
    """
    found = store or next((source.store for source in sources if isinstance(source, Artifact)), None) or open()
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
        """The artifact behind `kind/id`, `kind/name` or a path, its files checked."""
        return _of_kind(self, self._folder.get(reference))

    def run(self, command: str, *sources: "str | Path | Artifact", **settings: Any) -> "Artifact":
        """As `memlm.run`, in this store."""
        from memlm_cli.run_command import run_command

        words = [source.reference if isinstance(source, Artifact) else str(source) for source in sources]
        given = {name: _plain(value) for name, value in settings.items()}
        return self[run_command(command, words, {"store": str(self.path), **given})]

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
            memory: readings in its place, as after `--memory`; "none": the model alone. Neither: defaults.
            settings: `context`, `stride`, `mem_length`, `long_length`, `device`, `precision`, as of `memlm inspect`;
                `index` or `neighbors`, memory of another encoder.
        """
        from stages.inspection.request import Request

        if report is not None and memory is not None:
            raise UsageError("report and memory both say what is read; give one of them.")
        given = {name: _plain(value) for name, value in settings.items()}
        names = ("context", "stride", "mem_length", "long_length", "device", "precision", "index", "neighbors")
        for name in given.keys() - set(names):
            raise UsageError(f"read takes no {name!r}; {did_you_mean(name, names)}")
        references = {role: given.pop(role, None) for role in ("index", "neighbors")}
        specs = (memory,) if isinstance(memory, str) else memory
        request = Request(
            source=_plain(source),
            memory=None if specs is None else tuple(specs),
            report=_plain(report),
            references=references,
            **given,
        )
        return Reader(self._folder, request)


class Artifact:
    """What a stage made; read-only."""

    def __init__(self, store: Store, stored: "Stored") -> None:
        self.store = store
        self._stored = stored

    def __repr__(self) -> str:
        return f"<memlm {self.reference}>"

    @property
    def reference(self) -> str:
        """`kind/id`."""
        return self._stored.reference

    @property
    def config(self) -> dict[str, Any]:
        """All settings, resolved."""
        return self._stored.config

    @property
    def metrics(self) -> dict[str, Any]:
        """What its stage measured."""
        return self._stored.metrics

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._stored.path

    @property
    def inputs(self) -> "dict[str, Artifact]":
        """What it was made from, by role, as far as that is still there."""
        present = {role: record.reference for role, record in self._stored.manifest.inputs.items()}
        folder = self._stored.store
        return {role: self.store[ref] for role, ref in present.items() if (folder.root / ref).is_dir()}


class Tokens(Artifact):
    """Text as ids."""


class Model(Artifact):
    """A language model."""


class Neighbors(Artifact):
    """Rows of a datastore that were found for the tokens of splits."""


class Datastore(Artifact):
    """Keys and values."""

    @property
    def keys(self) -> Any:
        """Representations of contexts, float16 or float32 [rows, dim], read as they are sliced."""
        return self._stored.zarr("datastore.zarr")["keys"]

    @property
    def values(self) -> Any:
        """The token that follows each, int32 [rows], read as they are sliced."""
        return self._stored.zarr("datastore.zarr")["values"]

    def batches(self, rows: int = 8192) -> "Iterator[tuple[np.ndarray, np.ndarray]]":
        """Keys and values of so many rows at a time, in stored order."""
        if rows < 1:
            raise UsageError(f"batches are of 1 row or more, not {rows}.")
        keys, values = self.keys, self.values
        for start in range(0, len(values), rows):
            yield keys[start : start + rows], values[start : start + rows]


class Index(Artifact):
    """Keys, ready to be searched."""

    def search(self, queries: Any, k: int) -> "tuple[np.ndarray, np.ndarray]":
        """The k nearest rows of its datastore for each query.

        Args:
            queries: [n, dim], or [dim] for one.
        Returns: ids int64 [n, k], best first, -1 where there are fewer; distances float32 [n, k], squared L2, or
            inner products.
        """
        import numpy as np

        dim, dtype = self._searcher.dim, self._stored.find("datastore").metrics["dtype"]
        wanted = np.atleast_2d(np.asarray(queries)).astype(dtype).astype(np.float32)
        if wanted.ndim != 2 or wanted.shape[1] != dim:
            raise UsageError(f"queries are [n, {dim}], not {list(np.shape(queries))}.")
        if k < 1:
            raise UsageError(f"k is 1 or more, not {k}.")
        return self._searcher.search(wanted, k)

    @cached_property
    def _searcher(self) -> Any:
        from stages.search.open import open_searcher

        keys = self._stored.find("datastore").metrics
        return open_searcher(self._stored.file("index.faiss"), self.config, (keys["rows"], keys["dim"]))


class Report(Artifact):
    """What an evaluation found."""

    def table(self) -> Columns:
        """A row for the model alone and for each memory: perplexity, bits a character, …"""
        rows = self._stored.json("metrics.json")["rows"]
        plain = [name for name, value in rows[0].items() if isinstance(value, str | int | float) or value is None]
        return _columns([{name: row.get(name) for name in plain} for row in rows])

    def tokens(self) -> Columns:
        """Every scored token, of a report with `save_token_scores`: `id`, `token`, `logp`, `logp_lm`, `gain`, …

        Log-probabilities in nats; `logp_memory_1`, … are those within each reading's memory.
        """
        import numpy as np

        from stages.evaluation.results.token_scores import open_scores
        from stages.lineage.corpus import token_text

        open_scores(self._stored, "final")
        group: Any = self._stored.zarr("scores.zarr")
        held = {name: group[name][:] for name in group.array_keys()}
        ids, memory = held.pop("target"), held.pop("logp_memory", None)
        text = token_text(self._stored.input("tokens"))
        labels = {int(id): text.label(int(id)) for id in np.unique(ids)}
        found = {"id": ids, "token": np.array([labels[id] for id in ids.tolist()], object), **held}
        found["gain"] = held["logp"] - held["logp_lm"]
        for number in range(0 if memory is None else memory.shape[1]):
            found[f"logp_memory_{number + 1}"] = memory[:, number]
        return found

    def page(self) -> "Page":
        """The page of `memlm report`; a notebook shows it."""
        from memlm_cli.comparison_text import baseline_remarks
        from memlm_cli.reproduce import script
        from stages.pages.page import build_page

        made = build_page([self._stored], script, baseline_remarks)
        return Page(made.html, {figure.name: Picture(figure.svg, figure.title) for figure in made.figures})

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()


class Picture:
    """A drawing; a notebook shows it."""

    def __init__(self, svg: str, title: str) -> None:
        self.svg, self.title = svg, title

    def __repr__(self) -> str:
        return f"<memlm picture: {self.title}>"

    def _repr_svg_(self) -> str:
        return self.svg


class Page:
    """A web page, complete in itself; a notebook shows it in a frame."""

    def __init__(self, html: str, figures: Mapping[str, Picture] | None = None) -> None:
        self.html = html
        self.figures = dict(figures or {})

    def write(self, path: str | Path) -> None:
        """As a file."""
        Path(path).write_text(self.html, "utf-8")

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 640px; border: 1px solid #8884"
        return f'<iframe srcdoc="{escape(self.html)}" style="{style}" sandbox></iframe>'


class Reader:
    """A model with its memories, loaded when it first reads; and again, for other windows, when it first writes."""

    def __init__(self, store: "Folder", request: "Request") -> None:
        from stages.inspection.request import find

        self._store, self._request = store, request
        self._found: Resolved = find(request, store, None)

    def __repr__(self) -> str:
        model, *others = (f"{artifact.reference}" for role, artifact in self._found.read.items() if role != "tokens")
        return f"<memlm reader of {model}{' with ' if others else ''}{', '.join(others)}>"

    def score(self, text: str) -> "Scores":
        """A text from its first token on, as `memlm inspect --text` reads it."""
        from stages.inspection.inspect import inspect_passage

        return Scores(inspect_passage(self.loaded, text, 0), self, text)

    def generate(self, prompt: str = "", **options: Any) -> str:
        """What is written behind a prompt; options as of `parts`."""
        return "".join(self.parts(prompt, **options))

    def parts(
        self,
        prompt: str = "",
        *,
        max_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop_at_eos: bool = False,
    ) -> Iterator[str]:
        """The same as it is written, token by token; see `memlm generate`."""
        from stages.generation.generate import GenerationRequest, generate
        from stages.generation.sampling import Sampling
        from stages.text.decoding import TextStream

        sampling = Sampling(temperature, top_k, top_p)
        wanted = GenerationRequest(prompt, max_tokens, sampling, seed, stop_at_eos)
        stream = TextStream(self._writer.text)
        for token in generate(self._writer, wanted):
            yield stream.add(token.id)
        yield stream.end()

    @property
    def memories(self) -> list[dict[str, Any]]:
        """The readings with their numbers."""
        return self.loaded.memories

    @cached_property
    def loaded(self) -> "MemoryReader":
        """What scores texts."""
        from stages.inspection.reading import load_reader

        return load_reader(self._found, self._request)

    @cached_property
    def _writer(self) -> "MemoryReader":
        from stages.generation.generate import open_writer

        return open_writer(self._request, self._store)


class Scores(dict[str, "np.ndarray"]):
    """A text token by token: `id`, `token`, `logp`, `logp_lm` (nats; with all memories, and by the model), `gain`.

    What probes measure at a token (`gate`) is a column, too.
    """

    def __init__(self, found: "Inspected", reader: Reader, text: str) -> None:
        super().__init__(_columns([_scored(token) for token in found.tokens]))
        self._reader, self._text = reader, text

    def neighbors(self, k: int = 8) -> Columns:
        """The k contexts that carried most of the prediction of each token, the heaviest first.

        Columns: `position` of the token, `rank`, `weight` within the reading's memory, `carried` (what it adds to the
        probability of the token it holds), `right` (whether that is the token that came), `split`, `row`, `document`,
        and the text `before` it, `next`, `after`.
        """
        found = self._inspected(k)
        return _columns(
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

        return Page(page(self._inspected(4)))

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()

    def _inspected(self, contexts: int) -> "Inspected":
        from stages.inspection.inspect import inspect_passage

        return inspect_passage(self._reader.loaded, self._text, contexts)


def _scored(token: "TokenView") -> dict[str, Any]:
    from math import log

    logp, logp_lm = (log(p) if p > 0 else -float("inf") for p in (token.final, token.model))
    own = {"id": token.id, "token": token.text or token.label, "logp": logp, "logp_lm": logp_lm, "gain": token.gain}
    return own | token.columns


def _columns(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows of one shape as arrays by name; texts as Python's own."""
    import numpy as np

    found = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        plain = all(isinstance(value, bool | int | float) for value in values)
        found[name] = np.array(values) if plain else np.array(values, object)
    return found


def _plain(value: Any) -> Any:
    """Artifacts by their references, in lists too."""
    if isinstance(value, Artifact):
        return value.reference
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


_KINDS: dict[str, type[Artifact]] = {
    "tokens": Tokens,
    "model": Model,
    "datastore": Datastore,
    "index": Index,
    "neighbors": Neighbors,
    "report": Report,
}


def _of_kind(store: Store, stored: "Stored") -> Artifact:
    return _KINDS.get(stored.kind, Artifact)(store, stored)
