"""Probes, a folder each: settings and code that record what a method or a layer does while a split is scored."""

from stages.registry import Part, Registry

PROBES = Registry(
    "probe",
    {
        "gate": Part.within("stages.diagnostics.gate", "settings:GateProbeSettings", "probe:GateProbe"),
        "product_keys": Part.within(
            "stages.diagnostics.product_keys", "settings:ProductKeysProbeSettings", "probe:ProductKeysProbe"
        ),
        "memorizing": Part.within(
            "stages.diagnostics.memorizing", "settings:MemorizingProbeSettings", "probe:MemorizingProbe"
        ),
        "compressive": Part.within(
            "stages.diagnostics.compressive", "settings:CompressiveProbeSettings", "probe:CompressiveProbe"
        ),
        "infinity": Part.within("stages.diagnostics.infinity", "settings:InfinityProbeSettings", "probe:InfinityProbe"),
    },
)
"""By their names in `metrics.json`.

The settings are a `stages.diagnostics.settings.ProbeSettings`, the code is a `stages.encoding.probe.Probe`.
"""
