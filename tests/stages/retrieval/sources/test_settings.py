import pytest

from stages.artifacts.store import Store
from stages.memory.hyperparameter import doubling_cutoffs
from stages.memory.readers.settings import JOINT_TEMPERATURES
from stages.retrieval.grammar import parse_reading
from stages.retrieval.neighbors import Datastore
from stages.retrieval.resolve import resolve_reading
from stages.retrieval.sources.external import ExternalSource
from stages.retrieval.sources.source import SourceInputs
from tests.stages.small_store import small_model, small_tokens


@pytest.mark.parametrize(
    ("k", "cutoffs"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))]
)
def test_cutoffs_double_up_to_k_and_end_with_it(k, cutoffs):
    assert doubling_cutoffs(k) == cutoffs


@pytest.mark.parametrize(
    ("settings", "metric", "lossless", "recomputed"),
    [
        ("similarity=l2", "l2", True, False),
        ("similarity=l2", "l2", False, False),
        ("similarity=l2,exact=true", "l2", False, True),
        ("similarity=l2,exact=true", "l2", True, False),
        ("similarity=dot", "l2", True, True),
        ("similarity=l2", "ip", True, True),
        ("similarity=scaled-dot", "ip", True, False),
    ],
)
def test_scores_are_recomputed_only_where_what_is_found_will_not_do(
    settings, metric, lossless, recomputed
):
    reading = parse_reading(f"external:lambda=0.1,{settings}")
    datastore = Datastore(None, None, metric, lossless)
    assert (
        ExternalSource(
            reading, SourceInputs(1, False, memories={ExternalSource: datastore})
        ).recompute
        == recomputed
    )


@pytest.mark.parametrize(("memory", "unit"), [(None, 1.0), ({"temperature": 4.0}, 4.0)])
def test_joint_temperatures_are_tried_around_that_of_training(tmp_path, memory, unit):
    store = Store(tmp_path)
    model = small_model(store, small_tokens(store), method="trime", memory=memory)

    def temperatures(spec):
        read = {"model": model, "tokens": model.input("tokens")}
        return resolve_reading(parse_reading(spec), read, ("test",)).comparison.temperature

    assert temperatures("local:reader=joint,temperature=tune") == tuple(
        unit * t for t in JOINT_TEMPERATURES
    )
    assert temperatures("local:reader=joint,temperature=1/2") == (1.0, 2.0)
    assert temperatures("local:reader=joint,temperature=tune,similarity=dot") == "tune"
    assert temperatures("local:lambda=tune,temperature=tune") == "tune"
