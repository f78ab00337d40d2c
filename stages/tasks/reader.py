"""A model of labels, read with the weights after any task of its stream."""

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.examples.corpus import Corpus
from stages.examples.documents import Documents
from stages.examples.examples import BATCH_TOKENS
from stages.methods.stream.files import after_file
from stages.models.config import model_of
from stages.models.language_model import LanguageModel, load_model, start_from
from stages.models.windows import WindowSettings


class StreamReader:
    """Answers of a model; weights are loaded when another place in the stream is asked for."""

    def __init__(self, model: Artifact, device: torch.device) -> None:
        self._artifact, self._place = model, -1
        self.model: LanguageModel = load_model(model.path, device)

    def go_to(self, place: int) -> None:
        """Take the weights after the task at a place, counted from 1; 0: those before the first."""
        if self._artifact.config["order"] is not None and place != self._place:
            start_from(self.model, self._artifact.file(after_file(place)))
            self._place = place

    def answers(self, examples: Documents, which: np.ndarray) -> np.ndarray:
        """The label that scores highest for each of some examples [n], int64."""
        size, found = max(1, BATCH_TOKENS // examples.cutting.context), list[np.ndarray]()
        with torch.no_grad():
            for start in range(0, len(which), size):
                batch = examples.batch(which[start : start + size]).to(next(self.model.parameters()).device)
                found.append(self.model.label_scores(batch).argmax(-1).cpu().numpy())
        return np.concatenate(found)


def documents_read(model: Artifact, tokens: Artifact, split: str) -> dict[str, Documents]:
    """The documents of a split by task, cut as in training."""
    length = int(model.config["segment_length"])
    cutting = model_of(model).cutting(WindowSettings(length, length))
    found = {}
    for task in Corpus.of(tokens).tasks(split, cutting, tokens.metrics["tasks"]):
        assert isinstance(task.examples, Documents)
        found[task.name] = task.examples
    return found
