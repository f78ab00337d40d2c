"""Examples: a split as batches and as ranges. What an example is follows from how the tokens were made."""

from typing import Literal

from stages.registry import Registry

Way = Literal["windows", "stream", "pooled"]
"""Ways to read a range of tokens: in windows, as one stream, or in a pooled window for each token."""

STREAMS = "streams"
"""Text without padding; tokens whose metrics name no other kind."""
EXAMPLES = Registry("kind of examples", {STREAMS: "stages.examples.streams:Streams"})
