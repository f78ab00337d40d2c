"""Examples: a split as batches and as ranges. What an example is follows from how the tokens were made."""

from stages.registry import Registry

EXAMPLES = Registry("kind of examples", {"streams": "stages.examples.streams:Streams"})
