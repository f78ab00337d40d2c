import pytest
import torch

from stages.retrieval.grammar import parse_readings, shortest
from stages.retrieval.neighbors import Datastore
from stages.retrieval.rows import rows_of
from stages.retrieval.sources.external import ExternalSource
from stages.retrieval.sources.source import SourceInputs

CACHE, STREAM, MATCHES = (
    "long:size=8,theta=1,lambda=0.1,similarity=dot,key=hidden",
    "exact-stream:size=9,lambda=0.2",
    "exact",
)
EACH = ["neural-cache", "exact-stream", "exact (length λ)"]


@pytest.mark.parametrize(
    ("specs", "names"),
    [
        ((CACHE, STREAM), ["neural-cache then exact-stream", *EACH[:2]]),
        ((CACHE, STREAM, MATCHES), [" then ".join(EACH), "neural-cache then exact-stream", *EACH]),
        (
            (CACHE, CACHE, CACHE),
            [" then ".join(EACH[:1] * n) for n in (3, 2, 1)]
            + ["neural-cache (2)", "neural-cache (3)"],
        ),
    ],
)
def test_a_composition_is_read_without_its_last_readings_and_each_alone(
    specs: tuple[str, ...], names: list[str]
) -> None:
    rows = rows_of(parse_readings(specs), SourceInputs(64, False), False)
    assert [row.name for row in rows] == names


def test_rows_of_a_model_that_translates_are_called_after_it() -> None:
    adaptive = parse_readings(
        ("external:k=2,temperature=1,lambda=adaptive,similarity=l2,key=hidden",)
    )
    inputs = SourceInputs(
        64, False, memories={ExternalSource: Datastore(None, torch.empty(0), "l2", True)}
    )
    wanted = ["knn-mt (adaptive λ)", "knn-mt"]
    assert [row.name for row in rows_of(adaptive, inputs, False, translates=True)] == wanted
    assert parse_readings(("knn-mt",)) == parse_readings(("knn-lm",))
    assert shortest(parse_readings(("knn-mt",))[0]) == "knn-lm"
