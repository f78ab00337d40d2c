"""How memory is read: a folder a reader, with its settings and its code."""

from stages.registry import Part, Registry

READERS = Registry(
    "memory reader",
    {
        "interpolate": Part.within(
            "stages.memory.readers.interpolate", "settings:InterpolateSettings", "reader:Interpolate"
        ),
        "joint": Part.within("stages.memory.readers.joint", "settings:JointSettings", "reader:Joint"),
    },
)
"""In the order in which their keys are spelled; the first is the default."""
