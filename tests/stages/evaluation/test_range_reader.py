"""Adaptation at test: a reading may learn from what it is about to read."""

import copy
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from stages.encoding.carried_state import CarriedState
from stages.encoding.encode import encode
from stages.encoding.split_reader import SplitReader
from stages.evaluation.range_reader import RangeReader
from stages.examples.corpus import Corpus
from stages.examples.examples import Block
from stages.models.backbones.transformer_config import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.models.windows import WindowSettings
from stages.retrieval.sources.source import Needs

V, TOTAL = 9, 40
ARRAYS = {"test/ids": np.arange(TOTAL) * 7 % V, "test/doc_offsets": np.array([0, TOTAL])}


def learnt(model: LanguageModel, examples: Iterator[Block]) -> LanguageModel:
    """A copy of the model after a few steps on these very tokens."""
    adapted, blocks = copy.deepcopy(model), list(examples)
    optimizer = torch.optim.SGD(adapted.parameters(), lr=0.5)
    for _ in range(5):
        for block in encode(adapted, blocks, gradients=True):
            adapted.loss(block.hidden, block.targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return adapted


def test_the_adapted_model_scores_and_the_model_stays_as_it_is() -> None:
    torch.manual_seed(0)
    sizes = {"layers": 1, "width": 8, "heads": 2, "ffn_width": 8, "dropout": 0.0}
    model = LanguageModel(TransformerConfig(vocab_size=V, max_positions=8, **sizes)).eval()
    how = SplitReader(Corpus(ARRAYS, 0), WindowSettings(8, 8), False, torch.device("cpu"), "fp32")
    plain = RangeReader(model, how, Needs())

    def log_p(reader: RangeReader) -> float:
        return float(reader.read("test", 8, 32, CarriedState(8)).scored_range.lm.log_p.sum())

    before, adapted = log_p(plain), log_p(replace(plain, adapt=learnt))
    assert adapted > before + 1
    assert log_p(plain) == before
