"""Inputs of a method besides tokens: which artifacts have them, and whether they fit. Free of
torch.
"""

from typing import ClassVar

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs
from stages.errors import ArtifactError, UsageError
from stages.lineage.neighbors import require_neighbors, require_some
from stages.lineage.sources import own_splits
from stages.methods.config import TRAIN, VALID
from stages.methods.settings import DistilledConfig
from stages.training.config import TrainConfig

INT32_BYTES = FLOAT32_BYTES = 4


class TrainingInput:
    """An input of training, registered in `INPUTS` by the kind of its artifact.

    The code of the same entry is a function `(inputs, config, folder) -> value`. A method finds
    the value in `side_inputs`, by the name of the entry.
    """

    tokens_role: ClassVar[str] = "tokens"
    """Role of the tokens among the inputs of its artifact."""
    missing: ClassVar[str] = "Method {method!r} does not learn from {source}."
    """Message about a source without it, for a method that learns from nothing else."""

    def require(self, source: Artifact, config: TrainConfig) -> None:
        """Check that an artifact fits a run.

        Raises: ArtifactError, naming a command that helps.
        """

    def mapped_bytes(self, inputs: Inputs, config: TrainConfig) -> int:
        """Bytes of disk that its arrays take until the run ends."""
        return 0

    def passing_bytes(self, inputs: Inputs) -> int:
        """Bytes of disk that are taken only while its arrays are written, before the first step."""
        return 0


class PackingInput(TrainingInput):
    """Segments, int64 [S], ordered so that neighbours are similar."""

    def require(self, source: Artifact, config: TrainConfig) -> None:
        """Check the length of its segments."""
        if source.config["segment_length"] == config.segment_length:
            return
        tokens = source.input(self.tokens_role).reference
        length = str(config.segment_length)
        raise ArtifactError(
            f"{source.reference} has segments of {source.config['segment_length']} tokens, but training uses "
            f"{length}; pack them again: {source.advise('pack-batches', tokens, '--segment-length', length)}, "
            f"or train with --segment-length {source.config['segment_length']}."
        )


class NeighborsInput(TrainingInput):
    """Tokens of each token's neighbours by split, int [T, k], -1 where one is missing."""

    tokens_role: ClassVar[str] = "queries"
    missing: ClassVar[str] = (
        "Method {method!r} reads the neighbours of every token, and {source} has none: "
        "run memlm precompute-neighbors INDEX, and train on what it prints."
    )

    def require(self, source: Artifact, config: TrainConfig) -> None:
        """Check that every split has enough neighbours, and that their datastore is there."""
        settings = config.method_settings
        number = settings.neighbors_read
        for split in splits_read(source.input(self.tokens_role)):
            if split not in settings.neighbor_splits:
                continue
            require_neighbors(source, split, number, "train --set memory.k=")
            require_some(source, split)
        source.find("datastore")

    def mapped_bytes(self, inputs: Inputs, config: TrainConfig) -> int:
        tokens = inputs["tokens"]
        splits = tokens.metrics["splits"]
        positions = sum(int(splits[split]["tokens"]) for split in splits_read(tokens))
        return positions * config.method_settings.neighbors_read * INT32_BYTES

    def passing_bytes(self, inputs: Inputs) -> int:
        return int(inputs["neighbors"].find("datastore").metrics["rows"]) * INT32_BYTES


class SoftLabelsInput(TrainingInput):
    """Distributions that neighbours give for the training split; None where none are learned."""

    tokens_role: ClassVar[str] = "queries"

    def require(self, source: Artifact, config: TrainConfig) -> None:
        """Check that neighbours are enough, and that their datastore holds no answers of tests."""
        settings = _of_soft_labels(config)
        if settings.k is not None:
            require_neighbors(source, TRAIN, settings.k, "train --set memory.k=")
        datastore = source.find("datastore")
        others = own_splits(datastore, source.input(self.tokens_role)) - {TRAIN}
        if others and settings.alpha:
            names = " and ".join(map(repr, sorted(others)))
            raise UsageError(
                f"{datastore.reference} was made of {names}, so a model that learns its neighbours learns the answers "
                f"there: build a datastore of {TRAIN!r} (memlm build-datastore --split {TRAIN})."
            )

    def mapped_bytes(self, inputs: Inputs, config: TrainConfig) -> int:
        settings = _of_soft_labels(config)
        if not settings.alpha:
            return 0
        positions = int(inputs["tokens"].metrics["splits"][TRAIN]["tokens"])
        return positions * (settings.k or 0) * (INT32_BYTES + FLOAT32_BYTES)

    def passing_bytes(self, inputs: Inputs) -> int:
        return int(inputs["neighbors"].find("datastore").metrics["rows"]) * INT32_BYTES


def _of_soft_labels(config: TrainConfig) -> DistilledConfig:
    settings = config.method_settings
    assert isinstance(settings, DistilledConfig), "the method names this input"
    return settings


class EpisodesInput(TrainingInput):
    """Keys of the documents of tasks, [documents, d]."""

    tokens_role: ClassVar[str] = "corpus"
    missing: ClassVar[str] = (
        "Method {method!r} searches for the nearest documents of tasks, and {source} has no keys of "
        "documents: run memlm build-episodes ENCODER --tokens TOKENS, and train on what it prints."
    )

    def require(self, source: Artifact, config: TrainConfig) -> None:
        """Check that the keys are of the split that is learnt."""
        if source.config["split"] != TRAIN:
            raise ArtifactError(
                f"{source.reference} has keys of {source.config['split']!r}, but training reads {TRAIN!r}: "
                f"memlm build-episodes --split {TRAIN}."
            )


class BackgroundInput(TrainingInput):
    """Examples of the text on which the initial model was trained."""


def splits_read(tokens: Artifact) -> list[str]:
    """The splits that training reads."""
    return [split for split in (TRAIN, VALID) if split in tokens.metrics["splits"]]
