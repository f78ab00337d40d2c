"""Methods of `train --method`: how batches are formed and which loss is minimized."""

from stages.registry import Part, Registry

METHODS = Registry(
    "method",
    {
        "lm": Part.within("stages.methods.lm", "config:LmConfig", "method:LanguageModeling"),
        "trime": Part.within("stages.methods.trime", "config:TrimeConfig", "method:Trime"),
        "trime-long": Part.within("stages.methods.trime_long", "config:TrimeLongConfig", "method:TrimeLong"),
        "trime-ext": Part.within("stages.methods.trime_ext", "config:TrimeExtConfig", "method:TrimeExt"),
        "spalm": Part.within("stages.methods.spalm", "config:SpalmConfig", "method:Spalm"),
        "sparse-memory": Part.within("stages.methods.lm", "sparse_config:SparseMemoryConfig", "sparse:SparseMemory"),
        "seq": Part.within("stages.methods.stream", "config:SequentialConfig", "plain:Plain"),
        "multitask": Part.within("stages.methods.stream", "config:MultitaskConfig", "plain:Plain"),
        "replay": Part.within("stages.methods.stream", "config:ReplayConfig", "replay:Replay"),
        "a-gem": Part.within("stages.methods.stream", "config:AGemConfig", "a_gem:AGem"),
        "gem": Part.within("stages.methods.stream", "config:GemConfig", "gem:Gem"),
        "ewc": Part.within("stages.methods.stream", "config:EwcConfig", "ewc:Ewc"),
        "mas": Part.within("stages.methods.stream", "config:MasConfig", "mas:Mas"),
        "oml-er": Part.within("stages.methods.stream", "config:OmlErConfig", "meta:OmlEr"),
        "anml-er": Part.within("stages.methods.stream", "config:AnmlErConfig", "meta:AnmlEr"),
        "emar": Part.within("stages.methods.stream", "config:EmarConfig", "emar:Emar"),
        "lamol": Part.within("stages.methods.stream", "config:LamolConfig", "lamol:Lamol"),
        "meta-mbpa": Part.within("stages.methods.stream", "config:MetaMbpaConfig", "meta_mbpa:MetaMbpa"),
    },
)
