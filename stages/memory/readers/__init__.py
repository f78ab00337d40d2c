"""How memory is read: a file a reader, with its settings beside it."""

from stages.registry import Part, Registry

HERE = "stages.memory.readers"

READERS = Registry(
    "memory reader",
    {
        "interpolate": Part.within(HERE, "interpolate_settings:InterpolateSettings", "interpolate:Interpolate"),
        "joint": Part.within(HERE, "joint_settings:JointSettings", "joint:Joint"),
    },
)
"""In the order in which their keys are spelled; the first is the default."""
