import pytest

from stages.retrieval.reading import parse_readings
from stages.retrieval.rows import rows_of
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
            [" then ".join(EACH[:1] * n) for n in (3, 2, 1)] + ["neural-cache (2)", "neural-cache (3)"],
        ),
    ],
)
def test_a_composition_is_read_without_its_last_readings_and_each_alone(
    specs: tuple[str, ...], names: list[str]
) -> None:
    rows = rows_of(parse_readings(specs), SourceInputs(64, False), False)
    assert [row.name for row in rows] == names
