"""Where memory comes from (sources) and how it is read (readers): pure functions on tensors."""

from stages.registry import Registry

SOURCES = Registry(
    "memory source",
    {
        "local": "stages.memory.recent:recent_cells",
        "long": "stages.memory.recent:recent_cells",
        "external": "stages.memory.external:external_cells",
    },
)

READERS = Registry(
    "memory reader",
    {
        "interpolate": "stages.memory.interpolate:Interpolate",
        "joint": "stages.memory.joint:Joint",
    },
)
