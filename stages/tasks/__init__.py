"""Scores of a stream of tasks: the tests of tasks, the weights that answer them, and figures."""

from stages.registry import Part, Registry

HERE = "stages.tasks"
READINGS = Registry(
    "reading of tasks",
    {
        "none": Part.within(HERE, "readings:NoReading", "answering:Alone"),
        "mbpa": Part.within(HERE, "readings:Mbpa", "answering:NearestAdaptation"),
        "random": Part.within(HERE, "readings:RandomAdaptation", "answering:DrawnAdaptation"),
        "coarse": Part.within(HERE, "readings:Coarse", "answering:CommonAdaptation"),
        "episodic": Part.within(HERE, "readings:Neighbors", "answering:Interpolation"),
    },
)
