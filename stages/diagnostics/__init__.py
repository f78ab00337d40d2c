"""What a method or a layer shows of itself while a split is scored: a folder and a line each.

`options` are those of its settings that an evaluation has (`stages.evaluate.EvaluateConfig`), settled before any work.
"""

from stages.registry import Registry

PROBES = Registry("probe", {"gate": "stages.diagnostics.gate.probe:GateProbe"})
"""Name in `metrics.json` -> `stages.encoding.probe.Probe`."""
OPTIONS = Registry("options of a probe", {"gate": "stages.diagnostics.gate.options:GateOptions"})
"""The same names -> what is asked of it. Free of torch."""
CHARTS = Registry("charts of a probe", {"gate": "stages.diagnostics.gate.charts:gate_charts"})
"""The same names -> its charts, from the files of a report. Free of torch."""
SUMMARIES = Registry("summary of a probe", {"gate": "stages.diagnostics.gate.report:summary"})
"""The same names -> its metrics in a line. Free of torch."""
