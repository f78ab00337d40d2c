"""Registry of readers, which combine the distributions of model and memory."""

from stages.registry import Part, Registry

HERE = "stages.memory.readers"

READERS = Registry(
    "memory reader",
    {
        "interpolate": Part.within(HERE, "settings:InterpolateSettings", "reader:Interpolate"),
        "joint": Part.within(HERE, "settings:JointSettings", "reader:Joint"),
    },
)
"""Readers in the order in which their keys are written; the first is the default."""
