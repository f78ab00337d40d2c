"""Where memory comes from at test: a folder a source; `local` and `long` share the code in `recent.py`."""

from stages.registry import Part, Registry

HERE = "stages.retrieval.sources"

SOURCES = Registry(
    "source",
    {
        "local": Part.within(HERE, "local.settings:LocalSettings", "recent:open_recent"),
        "long": Part.within(HERE, "long.settings:LongSettings", "recent:open_recent"),
        "external": Part.within(HERE, "external.settings:ExternalSettings", "external.source:open_external"),
    },
)
"""In the order in which sources and their keys are spelled.

The code is a function of (reading, SourceInputs) that opens a `Source`; sources that name the same are opened as one.
"""
