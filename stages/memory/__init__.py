"""Where memory comes from (sources) and how it is read (readers): pure functions on tensors."""

from stages.registry import Registry

READERS = Registry(
    "memory reader",
    {
        "interpolate": "stages.memory.interpolate:Interpolate",
        "joint": "stages.memory.joint:Joint",
    },
)
