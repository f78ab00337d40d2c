"""Stage build-episodes: model -> episodes.

Stores the key of every document of a split with its label. The keys come from a model that is not
trained on the stream. Readings of a stream search this memory. A shard is a range of documents.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage, ShardJob, ShardPlan
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.examples import EXAMPLES, STREAMS
from stages.lineage.corpus import corpus_of, require_split, require_text
from stages.models.config import model_of
from stages.models.devices import resolve_device
from stages.tasks.episodes import EPISODES, EpisodesConfig, key_width, layouts

if TYPE_CHECKING:
    from stages.examples.documents import Documents
    from stages.models.language_model import LanguageModel


@dataclass(frozen=True)
class Work:
    """The key network, and the documents."""

    model: "LanguageModel"
    documents: "Documents"


class BuildEpisodes(ShardedStage[EpisodesConfig, ShardPlan[Shard], Work, Shard]):
    """Encodes documents; roles: `encoder` (model), `corpus` (tokens)."""

    name = "build-episodes"
    kind = "episodes"
    Config = EpisodesConfig
    schema = EPISODES

    def inputs(self, config: EpisodesConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        encoder = require_text(store.get(references["source"], "model"))
        corpus = corpus_of(encoder, references, store)
        require_split(corpus, config.split)
        if not EXAMPLES.settings(corpus.metrics.get("examples", STREAMS)).tasks:
            raise ArtifactError(
                f"{corpus.reference} has no tasks: name tokens that were made with --tasks, --tokens."
            )
        return Inputs({"encoder": encoder, "corpus": corpus})

    def resolve(
        self, config: EpisodesConfig, inputs: Inputs, execution: Execution
    ) -> EpisodesConfig:
        encoder = inputs["encoder"]
        model = model_of(encoder)
        longest = model.longest_document
        pool = config.pool or ("encoder" if model.pools else "mean")
        if pool == "encoder" and not model.pools:
            raise UsageError(
                f"{encoder.reference} ({model.backbone}) has no pooling of its own: --pool mean, last or first."
            )

        usual = int(encoder.config.get("segment_length", 128))
        if model.pools and longest is not None:
            usual = longest
        length = config.length or usual
        if longest is not None and length > longest:
            raise UsageError(
                f"{encoder.reference} reads {longest} tokens of a document; --length {length} is more."
            )
        return config.model_copy(update={"pool": pool, "length": length})

    def plan(self, job: Job[EpisodesConfig]) -> ShardPlan[Shard]:
        rows = int(job.inputs["corpus"].metrics["splits"][job.config.split]["documents"])
        arrays = layouts(rows, key_width(model_of(job.inputs["encoder"]), job.config))
        return ShardPlan(
            [Shard(f"{number:06d}") for number in range(arrays[0].shards)], arrays=arrays
        )

    def open(self, job: ShardJob[EpisodesConfig], plan: ShardPlan[Shard]) -> Work:
        from stages.models.weights import load_model
        from stages.tasks.reader import all_documents

        encoder, length = job.inputs["encoder"], job.config.length
        assert length is not None
        model = load_model(encoder.path, resolve_device(job.execution.device))
        return Work(model, all_documents(encoder, job.inputs["corpus"], job.config.split, length))

    def run_shard(self, job: ShardJob[EpisodesConfig], work: Work, shard: Shard) -> ShardOutput:
        import numpy as np

        from stages.tasks.reader import document_keys

        config = job.config
        assert config.pool is not None
        width = key_width(work.model.config, config)
        keys, labels = layouts(work.documents.count, width)
        number, output = int(shard.key), ShardOutput(job.folder)
        inside = keys.rows(number)
        rows = np.arange(inside.start, inside.stop)
        found = document_keys(work.model, work.documents, rows, config.pool, config.normalize)
        if not np.isfinite(found).all():
            raise ArtifactError(
                f"Keys of {job.inputs['encoder'].reference} are not finite numbers: train it again."
            )
        output.write(keys, number, found)
        output.write(
            labels, number, work.documents.labels[inside.start : inside.stop].astype(np.int32)
        )
        return output

    def finish(self, job: Job[EpisodesConfig], plan: ShardPlan[Shard]) -> dict[str, Any]:
        rows, dim = plan.arrays[0].shape
        return {"rows": rows, "dim": dim}
