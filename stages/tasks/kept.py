"""Facts of a model of tasks: the documents in its memory, and the form of its answers."""

from safetensors.numpy import load_file

from stages.artifacts.artifact import Artifact
from stages.methods.config import MEMORY_FILE, TRAIN


def documents_kept(model: Artifact, tokens: Artifact) -> int:
    """Number of documents in memory after the last task: the documents that the method kept, or all
    training ones.
    """
    if MEMORY_FILE in model.manifest.files:
        return len(load_file(model.file(MEMORY_FILE))["rows"])
    return int(tokens.metrics["splits"][TRAIN]["documents"])


def answers_in_words(model: Artifact, tokens: Artifact) -> bool:
    """Whether answers are texts instead of labels; several texts may be accepted."""
    return bool(
        tokens.metrics.get("records", "labels") in ("spans", "answers")
    ) and not scores_text(model)


def scores_text(model: Artifact) -> bool:
    """Whether a model is scored by the perplexity of text instead of by answers."""
    head = model.config["model"]["head"]
    return bool(head["name"] == "language" and not head["answers"] and head.get("longest") is None)
