"""Where memory comes from (sources) and how it is read (readers): pure functions on tensors."""

from stages.registry import Registry

SOURCES = Registry("memory source", {"external": "stages.memory.external:external_cells"})

READERS = Registry("memory reader", {"interpolate": "stages.memory.interpolate:Interpolate"})
