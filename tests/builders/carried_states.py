"""Models that carry a state, and the states that training reads."""

from stages.models.backbones.stream_configs import (
    LSTMConfig,
    MemformerConfig,
    MemoryTransformerConfig,
    SRUPlusPlusConfig,
    TransformerXLConfig,
)
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.layers.memory_settings import (
    CompressiveSettings,
    HashedNgramsSettings,
    InfinitySettings,
    MemorizingSettings,
    MemoryPlusSettings,
    MemSizerSettings,
    ProductKeysSettings,
)
from tests.builders.training import V

LSTM = LSTMConfig(vocab_size=V, width=8, layers=2, dropout=0.3, initial_range=0.5)


XL = TransformerXLConfig(
    vocab_size=V, width=8, heads=2, ffn_width=8, dropout=0.3, segment_length=8, mem_length=12
)


SRU = SRUPlusPlusConfig(
    vocab_size=V, width=8, layers=2, dropout=0.3, segment_length=8, mem_length=12
)


KEYS = XL.model_copy(
    update={
        "feed_forward": ProductKeysSettings(
            heads=2, sub_keys=4, neighbors=2, value_lr=1e-2, layers=(1,)
        )
    }
)


PLUS = XL.model_copy(
    update={"feed_forward": MemoryPlusSettings(heads=2, sub_keys=4, neighbors=2, layers=(1, 2))}
)


NGRAMS = XL.model_copy(update={"lookup": HashedNgramsSettings(heads=2, slots=40, layers=(1,))})


SLOTS = XL.model_copy(update={"attention": CompressiveSettings(long_length=5, rate=4)})


ENTRIES = XL.model_copy(update={"attention": MemorizingSettings(long_length=30, neighbors=3)})


SIGNAL = XL.model_copy(
    update={"mem_length": 8, "attention": InfinitySettings(basis=8, samples=6, kl=0.1)}
)


SIZES = {"vocab_size": V, "width": 8, "heads": 2, "ffn_width": 8, "dropout": 0.3}


MEMFORMER = MemformerConfig(**SIZES, layers=1, encoder_layers=1, slots=3, segment_length=8)


TOKENS = MemoryTransformerConfig(**SIZES, memory_tokens=3, segment_length=8, mem_length=12)


CONTROLLER, BOTTLENECK = (
    TOKENS.model_copy(update={"memory_rows": rows}) for rows in ("controller", "bottleneck")
)


MEMSIZER = TransformerConfig(**SIZES, max_positions=8, attention=MemSizerSettings(slots=3))


MODELS = {
    "lstm": LSTM,
    "transformer-xl": XL,
    "sru++": SRU,
    "product-keys": KEYS,
    "memory-plus": PLUS,
    "hashed-ngrams": NGRAMS,
    "compressive": SLOTS,
    "memorizing": ENTRIES,
    "infinity": SIGNAL,
    "memformer": MEMFORMER,
    "memory-tokens": TOKENS,
    "controller": CONTROLLER,
    "bottleneck": BOTTLENECK,
    "memsizer": MEMSIZER,
}


def seen_states(run, monkeypatch):
    """Segments of each forward batch, what the batch before left, and what it leaves, in order."""
    seen, loss = [], run.run.method.loss

    def spy(model, batch, carried):
        result = loss(model, batch, carried)
        seen.append((batch.inputs.clone(), carried, result.carried))
        return result

    monkeypatch.setattr(run.run.method, "loss", spy)
    return seen
