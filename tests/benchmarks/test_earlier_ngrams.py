"""The control reads the rows of hashed n-grams, so many tokens later."""

import torch

from stages.models.backbones.window_configs import TransformerConfig
from stages.models.layers.hashed_ngrams import HashedNgrams
from stages.models.layers.memory_settings import HashedNgramsSettings
from tests.benchmarks.earlier_ngrams import EarlierNgrams, EarlierNgramsSettings

SIZES = {"slots": 13, "heads": 2, "entry_width": 2}


def test_slots_are_those_of_the_position_so_far_before() -> None:
    config = TransformerConfig(width=8, heads=2, vocab_size=20)
    tokens = torch.randint(20, (2, 12), generator=torch.Generator().manual_seed(0))
    ngrams = HashedNgrams(config, HashedNgramsSettings.model_validate(SIZES))
    earlier = EarlierNgrams(config, EarlierNgramsSettings.model_validate({**SIZES, "distance": 3}))

    of_latest = ngrams.slots(tokens, None)
    of_earlier = earlier.slots(tokens, None)
    assert of_latest.shape[1] == 10 and of_earlier.shape[1] == 7
    assert torch.equal(of_earlier, of_latest[:, :7])
    assert not torch.equal(of_earlier, of_latest[:, 3:])
    assert earlier.settings.before == ngrams.settings.before + 3
