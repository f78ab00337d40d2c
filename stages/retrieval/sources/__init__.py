"""Where memory comes from at test: a folder a source, with its settings and its code."""

from stages.registry import Registry

SOURCES = Registry(
    "source",
    {
        "local": "stages.retrieval.sources.local.settings:LocalSettings",
        "long": "stages.retrieval.sources.long.settings:LongSettings",
        "external": "stages.retrieval.sources.external.settings:ExternalSettings",
    },
)
"""Names -> settings, which name their code. In the order in which sources and their keys are spelled."""
