"""The work of build-episodes: the key of every document of a split, with its label.

A shard is a range of documents.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, Shard, ShardedWork, ShardJob, ShardPlan
from stages.errors import ArtifactError
from stages.examples.documents import Documents
from stages.models.computing import resolve_device
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.weights import load_model
from stages.tasks.episodes import EpisodesConfig, key_width, layouts
from stages.tasks.reader import all_documents, document_keys


@dataclass(frozen=True)
class DocumentEncoder:
    """The key network, and the documents."""

    model: LanguageModel
    documents: Documents


class EpisodesWork(ShardedWork[EpisodesConfig, ShardPlan[Shard], DocumentEncoder, Shard]):
    """Encodes documents; roles: `encoder` (model), `corpus` (tokens)."""

    def plan(self, job: Job[EpisodesConfig]) -> ShardPlan[Shard]:
        rows = int(job.inputs["corpus"].metrics["splits"][job.config.split]["documents"])
        arrays = layouts(rows, key_width(model_of(job.inputs["encoder"]), job.config))
        return ShardPlan(
            [Shard(f"{number:06d}") for number in range(arrays[0].shards)], arrays=arrays
        )

    def open(self, job: ShardJob[EpisodesConfig], plan: ShardPlan[Shard]) -> DocumentEncoder:
        encoder = job.inputs["encoder"]
        length = job.config.length
        assert length is not None
        model = load_model(encoder.path, resolve_device(job.execution.device))
        return DocumentEncoder(
            model, all_documents(encoder, job.inputs["corpus"], job.config.split, length)
        )

    def run_shard(
        self, job: ShardJob[EpisodesConfig], resources: DocumentEncoder, shard: Shard
    ) -> ShardOutput:
        config = job.config
        assert config.pool is not None
        width = key_width(resources.model.config, config)
        keys, labels = layouts(resources.documents.count, width)
        number = int(shard.key)
        output = ShardOutput(job.folder)
        inside = keys.rows(number)
        rows = np.arange(inside.start, inside.stop)
        of_documents = document_keys(
            resources.model, resources.documents, rows, config.pool, config.normalize
        )
        if not np.isfinite(of_documents).all():
            raise ArtifactError(
                f"Keys of {job.inputs['encoder'].reference} are not finite numbers: train it again."
            )
        output.write(keys, number, of_documents)
        output.write(
            labels, number, resources.documents.labels[inside.start : inside.stop].astype(np.int32)
        )
        return output

    def finish(self, job: Job[EpisodesConfig], plan: ShardPlan[Shard]) -> dict[str, Any]:
        rows, dim = plan.arrays[0].shape
        return {"rows": rows, "dim": dim}
