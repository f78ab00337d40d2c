"""What slots are good for: what stood at the beginning, farther back than cached positions reach."""

import pytest

from stages.models.config import parse_model
from tests.stages.models.layers.made_tasks import accuracy, batches_of, beginnings, learned

ONE_LAYER = {"backbone": "transformer-xl", "width": 32, "layers": 1, "heads": 2, "ffn_width": 64, "dropout": 0.0}
SLOTS = {"name": "compressive", "long_length": 8, "rate": 4}


@pytest.mark.parametrize(
    ("chosen", "least", "most"),
    [({}, 0.0, 0.3), *(({"attention": SLOTS | {"compression": kind}}, 0.9, 1.0) for kind in ("conv", "mean"))],
)
def test_the_beginning_is_known_through_slots_alone(chosen, least, most):
    """Six segments of 8 with 8 cached positions; a guess is right in 1 of 8."""
    train, test = (beginnings(rows, 8, 49, 8, seed) for rows, seed in ((4096, 1), (512, 2)))
    model = parse_model({**ONE_LAYER, "mem_length": 8, **chosen}).sized(17, 8)
    assert least <= accuracy(learned(model, batches_of(train, 64, 3), 300, 1e-2, segment=8), test) <= most
