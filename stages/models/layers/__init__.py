"""Layers of backbones, and the registries of those that settings of a block can choose."""

from stages.registry import Part, Registry

HERE = "stages.models.layers"
STREAM_ATTENTION = Registry(
    "attention of a transformer-xl",
    {
        "relative": Part.within(HERE, "settings:RelativeSettings", "relative:RelativeAttention"),
        "memorizing": Part.within(
            HERE, "memory_settings:MemorizingSettings", "memorizing:MemorizingAttention"
        ),
        "compressive": Part.within(
            HERE, "memory_settings:CompressiveSettings", "compressive:CompressiveAttention"
        ),
        "infinity": Part.within(
            HERE, "memory_settings:InfinitySettings", "infinity:InfinityAttention"
        ),
    },
)
WINDOW_ATTENTION = Registry(
    "attention of a transformer",
    {
        "softmax": Part.within(HERE, "settings:SoftmaxSettings", "softmax:SoftmaxAttention"),
        "memsizer": Part.within(HERE, "memory_settings:MemSizerSettings", "memsizer:MemSizer"),
    },
    [STREAM_ATTENTION],
)
STREAM_ATTENTION.others = [WINDOW_ATTENTION]
LOOKUP = Registry(
    "lookup of tokens",
    {
        "none": Part.within(HERE, "settings:NoLookupSettings", "sublayer:NoLookup"),
        "hashed-ngrams": Part.within(
            HERE, "memory_settings:HashedNgramsSettings", "hashed_ngrams:HashedNgrams"
        ),
    },
)
FEED_FORWARD = Registry(
    "feed-forward layer",
    {
        "dense": Part.within(HERE, "settings:DenseSettings", "sublayer:Dense"),
        "product-keys": Part.within(
            HERE, "memory_settings:ProductKeysSettings", "product_keys:ProductKeys"
        ),
        "memory-plus": Part.within(
            HERE, "memory_settings:MemoryPlusSettings", "product_keys:MemoryPlus"
        ),
    },
)
