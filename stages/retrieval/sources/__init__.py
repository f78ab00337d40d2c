"""Sources of memory at test: their settings, and a file for each source or two similar ones."""

from stages.registry import Part, Registry

HERE = "stages.retrieval.sources"

SOURCES = Registry(
    "source",
    {
        "local": Part.within(HERE, "settings:LocalSettings", "recent:open_recent"),
        "long": Part.within(HERE, "settings:LongSettings", "recent:open_recent"),
        "exact-stream": Part.within(HERE, "settings:ExactStreamSettings", "exact:open_stream"),
        "exact": Part.within(HERE, "settings:ExactSettings", "exact:open_exact"),
        "external": Part.within(HERE, "settings:ExternalSettings", "external:open_external"),
        "similar-pairs": Part.within(HERE, "settings:SimilarPairsSettings", "external:open_pairs"),
    },
)
"""Sources in the order in which they and their keys are spelled.

The code is a function of (reading, SourceInputs) that opens a `Source`; sources that name the same are opened as one.
"""
