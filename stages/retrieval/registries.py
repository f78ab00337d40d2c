"""Registries of retrieval: the sources of memory, and the policies of their weights. Free of torch."""

from stages.registry import Part, Registry

SOURCES_HERE = "stages.retrieval.sources"
WEIGHTS_HERE = "stages.retrieval.weights"

SOURCES = Registry(
    "source",
    {
        "local": Part.within(SOURCES_HERE, "recent_settings:LocalSettings", "recent:RecentSource"),
        "long": Part.within(SOURCES_HERE, "recent_settings:LongSettings", "recent:RecentSource"),
        "exact-stream": Part.within(
            SOURCES_HERE, "exact_settings:ExactStreamSettings", "exact:ExactStreamSource"
        ),
        "exact": Part.within(SOURCES_HERE, "exact_settings:ExactSettings", "exact:ExactSource"),
        "external": Part.within(
            SOURCES_HERE, "external_settings:ExternalSettings", "external:ExternalSource"
        ),
        "decoder": Part.within(
            SOURCES_HERE, "decoder_settings:DecoderSettings", "decoder:DecoderSource"
        ),
        "mlp": Part.within(SOURCES_HERE, "mlp_settings:MlpSettings", "mlp:MlpSource"),
        "similar-pairs": Part.within(
            SOURCES_HERE,
            "similar_pairs_settings:SimilarPairsSettings",
            "similar_pairs:SimilarPairsSource",
        ),
    },
)
"""Sources in the order in which they and their keys are spelled.

The settings are `SourceSettings`, the code is a `Source`. Sources with the same code are opened as
one.
"""

WEIGHTS = Registry(
    "weight of memory",
    {
        "fixed": f"{WEIGHTS_HERE}.grid:Fixed",
        "grid": f"{WEIGHTS_HERE}.grid:Grid",
        "learned": Part.within(WEIGHTS_HERE, "rules:PlannedSearches", "learned:ByNetwork"),
        "adaptive": f"{WEIGHTS_HERE}.adaptive:Adaptive",
        "distance": Part.within(WEIGHTS_HERE, "rules:SquaredDistances", "distance:ByDistance"),
        "length": Part.within(WEIGHTS_HERE, "rules:MatchesOnly", "length:ByLength"),
    },
)
"""Weight policies by name. The code is a `WeightPolicy`.

The settings are a `WeightRule`, which says for which readings the policy is valid. A policy without
settings is valid for all readings.
"""

NUMBERS = ("fixed", "grid")
"""Policies of readings whose weight is a number; all others are typed by name: `lambda=learned`."""


def weights_by_name() -> list[str]:
    """Policies that are legal instead of a number for a weight."""
    return [name for name in WEIGHTS.names() if name not in NUMBERS]


CHOICES = "weight-choices.json"
"""File of a report from which the policy of its first row, with weights for each context, is
restored.
"""
