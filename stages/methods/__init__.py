"""Methods of `train --method`: how batches are formed and which loss is minimized."""

from stages.registry import Part, Registry

HERE = "stages.methods"
METHODS = Registry(
    "method",
    {
        "lm": Part.within(HERE, "settings:LmConfig", "lm:LanguageModeling"),
        "trime": Part.within(HERE, "settings:TrimeConfig", "trime:Trime"),
        "trime-long": Part.within(HERE, "settings:TrimeLongConfig", "trime:TrimeLong"),
        "trime-ext": Part.within(HERE, "settings:TrimeExtConfig", "trime:TrimeExt"),
        "spalm": Part.within(HERE, "settings:SpalmConfig", "spalm:Spalm"),
        "memory-decoder": Part.within(
            HERE, "settings:MemoryDecoderConfig", "distilled:MemoryDecoder"
        ),
        "mlp-memory": Part.within(HERE, "settings:MlpMemoryConfig", "distilled:MlpMemory"),
        "sparse-memory": Part.within(
            HERE, "settings:SparseMemoryConfig", "sparse_memory:SparseMemory"
        ),
        "seq": Part.within("stages.methods.stream", "config:SequentialConfig", "classifying:Plain"),
        "multitask": Part.within(
            "stages.methods.stream", "config:MultitaskConfig", "classifying:Plain"
        ),
        "replay": Part.within("stages.methods.stream", "config:ReplayConfig", "memory:Replay"),
        "a-gem": Part.within("stages.methods.stream", "config:AGemConfig", "projection:AGem"),
        "gem": Part.within("stages.methods.stream", "config:GemConfig", "projection:Gem"),
        "ewc": Part.within("stages.methods.stream", "config:EwcConfig", "importance:Ewc"),
        "mas": Part.within("stages.methods.stream", "config:MasConfig", "importance:Mas"),
        "oml-er": Part.within("stages.methods.stream", "config:OmlErConfig", "meta:OmlEr"),
        "anml-er": Part.within("stages.methods.stream", "config:AnmlErConfig", "meta:AnmlEr"),
        "emar": Part.within("stages.methods.stream", "config:EmarConfig", "emar:Emar"),
        "lamol": Part.within("stages.methods.stream", "language_config:LamolConfig", "lamol:Lamol"),
        "elle": Part.within("stages.methods.stream", "language_config:ElleConfig", "elle:Elle"),
        "meta-mbpa": Part.within(
            "stages.methods.stream", "config:MetaMbpaConfig", "meta_mbpa:MetaMbpa"
        ),
    },
)
