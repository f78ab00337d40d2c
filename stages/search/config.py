"""Settings of an index, and what is to be indexed."""

from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, field_validator

from stages.config import Spelling, StageConfig
from stages.errors import did_you_mean
from stages.search import EXACT, KINDS

Auto = Literal["auto"]
Count = Annotated[int, Field(gt=0)]


class IndexConfig(StageConfig):
    """Settings of build-index. What does not apply to the kind is None once resolved."""

    not_identity = frozenset({"largest_gigabytes"})

    not_options = frozenset(
        {"lists", "probe", "code_bytes", "code_bits", "links", "train_keys", "largest_gigabytes", "seed"}
    )

    index: Annotated[str, Field(min_length=1), Spelling("auto|flat|ivf-flat|ivf-pq|hnsw|exact|FACTORY")] = "auto"
    """Kind of index, or a FAISS factory string; auto: by size; exact: of tokens, for exact matches of any length."""
    metric: Literal["l2", "ip"] = "l2"
    """Squared Euclidean distance, or inner product."""
    lists: Count | Auto | None = "auto"
    """Inverted lists; auto: the power of two nearest to twice the square root of the keys, at most 4,096."""
    probe: Count | Auto | None = "auto"
    """Lists that a query reads; auto: 64 of ivf-flat, else 32, or all if there are fewer."""
    code_bytes: Count | Auto | None = "auto"
    """Bytes of a product-quantised key; auto: 64, or the largest number below that suits the width."""
    code_bits: Annotated[int, Field(ge=1, le=12)] | Auto | None = "auto"
    """Bits of one code of a product quantiser; auto: 8."""
    links: Annotated[int, Field(ge=2)] | Auto | None = "auto"
    """Links of a key in an HNSW graph; auto: 32."""
    train_keys: Count | Auto | None = "auto"
    """Keys, drawn at random, on which lists and codes are learnt; auto: 64 a list, at least 131,072."""
    largest_gigabytes: Annotated[float, Field(gt=0)] = 8.0
    """Where whole keys would take more than this, auto compresses them."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the sample and of k-means."""
    recall: Annotated[
        int,
        Field(ge=0),
        BeforeValidator(lambda given: 0 if given == "none" else given),
        Spelling("none|SAMPLE"),
    ] = 1000
    """Keys whose neighbours are compared with exact search, which takes long for many keys; of a changed index in
    proportion to what changed; none: recall is not measured."""

    split: str | None = None
    """Split whose contexts an exact index sorts; None: train."""

    @field_validator("index")
    @classmethod
    def _known(cls, index: str) -> str:
        """FAISS's own strings begin with a capital; what does not must be a kind."""
        if index[:1].islower() and index not in (known := ("auto", *KINDS, EXACT)):
            raise ValueError(f"there is no index {index!r}; {did_you_mean(index, known)}")
        return index


class Keys(NamedTuple):
    """Keys to index: their number, width, and dtype as stored."""

    rows: int
    dim: int
    dtype: str
