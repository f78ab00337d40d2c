"""Types and ranges of a manifest's settings and figures, which its digest does not promise."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stages.artifacts.manifest import MANIFEST, Manifest

Count = Annotated[int, Field(ge=0, lt=2**53)]
Positive = Annotated[int, Field(gt=0, lt=2**53)]
Id = Annotated[int, Field(ge=0, lt=2**31)]
"""Id of a token; values of datastores and targets of scores are int32."""
Number = Annotated[str, Field(pattern="^[0-9]{1,18}$")]
Share = Annotated[float, Field(ge=0, le=1)]
Key = Literal["ffn-input", "hidden"]
Dtype = Literal["float16", "float32"]
Metric = Literal["l2", "ip"]


class _Group(BaseModel):
    """Some of the names of a table; others may stand beside. Made ready when the first of its kind is read."""

    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)


class _Windows(_Group):
    context: Positive
    stride: Positive | None
    mem_length: Count | None = None
    long_length: Count | None = None


class _Split(_Group):
    tokens: Count
    documents: Count
    characters: Count
    bytes: Count
    words: Count
    paragraphs: Count | None = None
    unknown_rate: Share


class _Tokens(_Group):
    splits: dict[str, _Split]
    vocabulary_size: Annotated[int, Field(gt=0, le=2**31)]
    eos_id: Id
    unk_id: Id | None = None
    start_id: Id = 0
    prefix_id: Id | None = None
    tokenizer: str
    eos_after: Literal["line", "document", "never"]


class _Memory(_Group):
    """Settings of a method's memory; other names are those of the method."""

    k: Count | None = None
    key: Key | None = None
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class _Architecture(_Group):
    """Other names are those of the backbone that it says."""

    backbone: str
    vocab_size: Positive
    gate: str | None = None


class _ModelSettings(_Group):
    model: _Architecture
    method: str
    memory: _Memory | None = None
    segment_length: Positive
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None

    @model_validator(mode="after")
    def _neighbors_of_a_gate(self) -> Self:
        if self.model.gate is not None and (self.memory is None or self.memory.k is None):
            raise ValueError("a gate, and no memory.k")
        return self


class _Model(_Group):
    parameters: Positive
    valid_perplexity: float | None = None
    passes: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    still_falling: bool | None = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if ("passes" in self.model_fields_set) != ("still_falling" in self.model_fields_set):
            raise ValueError("passes and still_falling, of which one is missing")
        return self


class _DatastoreSettings(_Windows):
    split: str | None
    key: Key
    dtype: Dtype
    reset: Literal["none", "document"] = "none"
    forget: list[str] = []


class _Datastore(_Group):
    rows: Positive
    dim: Annotated[int, Field(gt=0, lt=2**31)]
    dtype: Dtype
    added: Count = 0
    documents: Count = 0


class _IndexSettings(_Group):
    index: str
    metric: Metric
    probe: Positive | None
    lists: Positive | None = None


class _Index(_Group):
    rows: Positive
    dim: Annotated[int, Field(gt=0, lt=2**31)]
    lossless: bool
    bytes: Count
    recall_by_probe: dict[Number, dict[Number, Share]] | None = None


class _NeighborsSettings(_Group):
    queries: list[str]
    k: Positive
    exclude: str
    exact: bool
    candidates: Positive | None
    probe: Positive | None


class _Found(_Group):
    missing: Share
    queries: Count


class _Neighbors(_Group):
    splits: dict[str, _Found]


class _BatchesSettings(_Group):
    segment_length: Positive


class _Batches(_Group):
    segments: Positive


class _ReportSettings(_Group):
    split: str
    score: Literal["all", "last-word"]
    reset: Literal["none", "document"]
    exclude: str | None = None
    memory: list[str] | None = None


class _Row(_Group):
    row: str
    perplexity: float | None
    nll: float | None


class _Report(_Group):
    rows: Annotated[list[_Row], Field(min_length=1)]
    method: str
    split: str
    score: Literal["all", "last-word"]
    memories: list[dict[str, Any]]


_FACTS: dict[str, tuple[str, type[_Group] | None, type[_Group]]] = {
    "tokens": ("tokenizer.json", None, _Tokens),
    "model": ("model.safetensors", _ModelSettings, _Model),
    "datastore": ("datastore.zarr/zarr.json", _DatastoreSettings, _Datastore),
    "index": ("index.faiss", _IndexSettings, _Index),
    "neighbors": ("neighbors.zarr/zarr.json", _NeighborsSettings, _Neighbors),
    "batches": ("batches.zarr/zarr.json", _BatchesSettings, _Batches),
    "report": ("metrics.json", _ReportSettings, _Report),
}
"""By kind: a file that is in every artifact of it, its settings and its figures."""


def wrong_facts(manifest: Manifest) -> str | None:
    """Describe a setting or figure of a manifest that nobody could have written; None: there is none."""
    file, settings, figures = _FACTS[manifest.kind]
    if file not in manifest.files:
        return None
    for name, model, found in (("config", settings, manifest.config), ("metrics", figures, manifest.metrics)):
        try:
            (model or _Group).model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, (name, *first["loc"])))
            return f"{MANIFEST} has {where[:100]}: {first['msg']}"
    return None
