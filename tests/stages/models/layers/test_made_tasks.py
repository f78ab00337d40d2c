"""What memory in a layer is good for: small models learn made tasks with it, and do not without."""

import pytest

from stages.models.config import parse_model
from tests.stages.models.layers.made_tasks import accuracy, batches_of, beginnings, facts, learned

pytestmark = pytest.mark.endurance

SIZES = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 64, "dropout": 0.0}
KEYS = {"name": "product-keys", "heads": 2, "sub_keys": 32, "neighbors": 8, "value_lr": 3e-2}
SLOTS = {"name": "compressive", "long_length": 8, "rate": 4}
SIGNAL = {
    "name": "infinity",
    "basis": 16,
    "widths": (0.05, 0.1),
    "samples": 16,
    "contraction": 0.75,
}


def memorizing(entries: int) -> dict[str, object]:
    return {"name": "memorizing", "long_length": entries, "neighbors": 8}


@pytest.mark.parametrize(
    ("attention", "steps", "least", "most"),
    [
        (None, 480, 0.0, 0.3),
        (SIGNAL, 480, 0.9, 1.0),
        *((SLOTS | {"compression": kind}, 300, 0.9, 1.0) for kind in ("conv", "mean")),
        *((memorizing(entries), 300, 0.0, 0.3) for entries in (0, 24)),
        (memorizing(48), 300, 0.9, 1.0),
    ],
)
def test_what_stood_at_the_beginning_is_known_where_memory_reaches_it(
    attention, steps, least, most
):
    """Six segments of 8 with 8 cached positions; a guess is right in 1 of 8."""
    train, test = (beginnings(rows, 8, 49, 8, seed) for rows, seed in ((4096, 1), (512, 2)))
    chosen = {} if attention is None else {"attention": attention}
    model = parse_model({**SIZES, "backbone": "transformer-xl", "mem_length": 8, **chosen}).sized(
        17, 8
    )
    assert (
        least
        <= accuracy(learned(model, batches_of(train, 64, 3), steps, 1e-2, segment=8), test)
        <= most
    )


@pytest.mark.parametrize(
    ("chosen", "least", "most"), [({}, 0.3, 0.8), ({"feed_forward": KEYS}, 0.9, 1.0)]
)
def test_more_facts_are_stored_in_slots_than_in_dense_layers(chosen, least, most):
    """1,024 facts in 30 passes; a guess is right in 1 of 64."""
    task = facts(1024, 64, seed=1)
    model = parse_model({**SIZES, **chosen}).sized(64, 2)
    assert (
        least <= accuracy(learned(model, batches_of(task, 256, seed=2), 120, lr=1e-2), task) <= most
    )
