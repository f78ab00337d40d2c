"""What slots are good for: facts, more of them than dense layers learn in as many passes."""

import pytest

from stages.models.config import parse_model
from tests.stages.models.layers.made_tasks import accuracy, batches_of, facts, learned

KEYS = {"name": "product-keys", "heads": 2, "sub_keys": 32, "neighbors": 8, "value_lr": 3e-2}


@pytest.mark.parametrize(("chosen", "least", "most"), [({}, 0.3, 0.8), ({"feed_forward": KEYS}, 0.9, 1.0)])
def test_facts_are_stored_in_slots(chosen, least, most):
    """1,024 facts in 30 passes; a guess is right in 1 of 64."""
    task = facts(1024, 64, seed=1)
    model = parse_model({"width": 32, "layers": 1, "heads": 2, "ffn_width": 64, "dropout": 0.0, **chosen}).sized(64, 2)
    assert least <= accuracy(learned(model, batches_of(task, 256, seed=2), 120, lr=1e-2), task) <= most
