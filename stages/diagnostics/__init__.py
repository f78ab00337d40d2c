"""Probes, one for each file: figures and charts of a method or a layer while a split is scored."""

from stages.registry import Registry

PROBES = Registry(
    "probe",
    {
        "gate": "stages.diagnostics.gate:GateProbe",
        "product_keys": "stages.diagnostics.product_keys:ProductKeysProbe",
        "hashed_ngrams": "stages.diagnostics.hashed_ngrams:NgramsProbe",
        "memorizing": "stages.diagnostics.memorizing:MemorizingProbe",
        "compressive": "stages.diagnostics.compressive:CompressiveProbe",
        "infinity": "stages.diagnostics.infinity:InfinityProbe",
        "memformer": "stages.diagnostics.memformer:MemformerProbe",
        "memory_tokens": "stages.diagnostics.memory_tokens:MemoryTokensProbe",
        "memsizer": "stages.diagnostics.memsizer:MemSizerProbe",
        "sru_plus_plus": "stages.diagnostics.sru_plus_plus:SRUProbe",
    },
)
"""Classes of `stages.diagnostics.probe.Probe`, by their names in `metrics.json`."""
