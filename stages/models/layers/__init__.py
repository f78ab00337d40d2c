"""Layers that backbones are made of; those in a block's two places are chosen by its settings, a folder each."""

from stages.registry import Part, Registry

STREAM_ATTENTION = Registry(
    "attention of a transformer-xl",
    {
        "relative": Part.within(
            "stages.models.layers.relative", "settings:RelativeSettings", "layer:RelativeAttention"
        ),
        "memorizing": Part.within(
            "stages.models.layers.memorizing", "settings:MemorizingSettings", "layer:MemorizingAttention"
        ),
        "compressive": Part.within(
            "stages.models.layers.compressive", "settings:CompressiveSettings", "layer:CompressiveAttention"
        ),
        "infinity": Part.within(
            "stages.models.layers.infinity", "settings:InfinitySettings", "layer:InfinityAttention"
        ),
    },
)
WINDOW_ATTENTION = Registry(
    "attention of a transformer",
    {"softmax": Part.within("stages.models.layers.softmax", "settings:SoftmaxSettings", "layer:SoftmaxAttention")},
    [STREAM_ATTENTION],
)
FEED_FORWARD = Registry(
    "feed-forward layer",
    {
        "dense": Part.within("stages.models.layers.dense", "settings:DenseSettings", "layer:Dense"),
        "product-keys": Part.within(
            "stages.models.layers.product_keys", "settings:ProductKeysSettings", "layer:ProductKeys"
        ),
    },
)
