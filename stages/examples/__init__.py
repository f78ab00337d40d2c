"""Examples: a split as batches and as ranges. The kind of tokens decides what an example is."""

from typing import Literal

from stages.registry import Part, Registry

Way = Literal["windows", "stream", "pooled"]
"""Ways to read a range of tokens: in windows, as one stream, or in a pooled window for each token.
"""

STREAMS = "streams"
"""Text without padding; the default kind if the metrics of tokens name none."""
DOCUMENTS = "documents"
"""Documents with labels, each of a task."""
QUESTIONS = "questions"
"""Documents of tasks, each with a question and an answer."""
PAIRS = "pairs"
"""Sentences, each with its source, to be translated."""
EXAMPLES = Registry(
    "kind of examples",
    {
        STREAMS: Part.within("stages.examples", "form:TEXT", "streams:Streams"),
        DOCUMENTS: Part.within("stages.examples", "form:LABELLED", "documents:Documents"),
        QUESTIONS: Part.within("stages.examples", "form:QUESTIONS", "documents:Questions"),
        PAIRS: Part.within("stages.examples", "form:PAIRS", "pairs:Pairs"),
    },
)
"""Kinds of examples: the form of a split (`SplitForm`), which tokens are checked against, and the
code.
"""
