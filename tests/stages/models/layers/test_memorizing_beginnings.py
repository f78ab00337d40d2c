"""What a memory is good for: what stood at the beginning is found, if the memory reaches so far, and only then."""

import pytest

from stages.models.config import parse_model
from tests.stages.models.layers.made_tasks import accuracy, batches_of, beginnings, learned

ONE_LAYER = {"backbone": "transformer-xl", "width": 32, "layers": 1, "heads": 2, "ffn_width": 64, "dropout": 0.0}


@pytest.mark.parametrize(("entries", "least", "most"), [(0, 0.0, 0.3), (24, 0.0, 0.3), (48, 0.9, 1.0)])
def test_the_beginning_is_found_if_the_memory_reaches_it(entries, least, most):
    """Six segments of 8 with 8 cached positions; a guess is right in 1 of 8."""
    train, test = (beginnings(rows, 8, 49, 8, seed) for rows, seed in ((4096, 1), (512, 2)))
    chosen = {"name": "memorizing", "long_length": entries, "neighbors": 8}
    model = parse_model({**ONE_LAYER, "mem_length": 8, "attention": chosen}).sized(17, 8)
    assert least <= accuracy(learned(model, batches_of(train, 64, 3), 300, 1e-2, segment=8), test) <= most
