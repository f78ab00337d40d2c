"""How memory is read: a folder a reader, with its settings and its code."""

from stages.registry import Registry

READERS = Registry(
    "memory reader",
    {
        "interpolate": "stages.memory.readers.interpolate.settings:InterpolateSettings",
        "joint": "stages.memory.readers.joint.settings:JointSettings",
    },
)
"""Names -> settings, which name their code. In the order in which their keys are spelled; the first is the default."""
