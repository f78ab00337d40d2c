"""Layers that backbones are made of, a file each; those in a block's places are chosen by its settings."""

from stages.registry import Part, Registry

STREAM_ATTENTION = Registry(
    "attention of a transformer-xl",
    {
        "relative": Part.within("stages.models.layers", "settings:RelativeSettings", "relative:RelativeAttention"),
        "memorizing": Part.within(
            "stages.models.layers", "memorizing_settings:MemorizingSettings", "memorizing:MemorizingAttention"
        ),
        "compressive": Part.within(
            "stages.models.layers", "compressive_settings:CompressiveSettings", "compressive:CompressiveAttention"
        ),
        "infinity": Part.within(
            "stages.models.layers", "infinity_settings:InfinitySettings", "infinity:InfinityAttention"
        ),
    },
)
WINDOW_ATTENTION = Registry(
    "attention of a transformer",
    {
        "softmax": Part.within("stages.models.layers", "settings:SoftmaxSettings", "softmax:SoftmaxAttention"),
        "memsizer": Part.within("stages.models.layers", "memsizer_settings:MemSizerSettings", "memsizer:MemSizer"),
    },
    [STREAM_ATTENTION],
)
STREAM_ATTENTION.others = [WINDOW_ATTENTION]
LOOKUP = Registry(
    "lookup of tokens",
    {
        "none": Part.within("stages.models.layers", "settings:NoLookupSettings", "sublayer:NoLookup"),
        "hashed-ngrams": Part.within(
            "stages.models.layers", "hashed_ngrams_settings:HashedNgramsSettings", "hashed_ngrams:HashedNgrams"
        ),
    },
)
FEED_FORWARD = Registry(
    "feed-forward layer",
    {
        "dense": Part.within("stages.models.layers", "settings:DenseSettings", "dense:Dense"),
        "product-keys": Part.within(
            "stages.models.layers", "product_keys_settings:ProductKeysSettings", "product_keys:ProductKeys"
        ),
        "memory-plus": Part.within(
            "stages.models.layers", "memory_plus_settings:MemoryPlusSettings", "memory_plus:MemoryPlus"
        ),
    },
)
