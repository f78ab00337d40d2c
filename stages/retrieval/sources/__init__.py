"""Sources of memory at test: their settings, and a file for each source or two similar ones."""

from stages.registry import Part, Registry

HERE = "stages.retrieval.sources"

SOURCES = Registry(
    "source",
    {
        "local": Part.within(HERE, "settings:LocalSettings", "recent:RecentSource"),
        "long": Part.within(HERE, "settings:LongSettings", "recent:RecentSource"),
        "exact-stream": Part.within(
            HERE, "settings:ExactStreamSettings", "exact:ExactStreamSource"
        ),
        "exact": Part.within(HERE, "settings:ExactSettings", "exact:ExactSource"),
        "external": Part.within(HERE, "settings:ExternalSettings", "external:ExternalSource"),
        "similar-pairs": Part.within(
            HERE, "settings:SimilarPairsSettings", "external:SimilarPairsSource"
        ),
    },
)
"""Sources in the order in which they and their keys are spelled.

The code is a `Source`; sources that name the same are opened as one.
"""
