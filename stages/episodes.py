"""Stage build-episodes: model -> episodes.

Stores the key of every document of a split with its label. The keys come from a model that is not
trained on the stream. Readings of a stream search this memory. `stages.tasks.episodes_work` does it.
"""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Execution, Inputs, Stage
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.examples import EXAMPLES, STREAMS
from stages.lineage.corpus import corpus_of, require_split, require_text
from stages.models.config import model_of
from stages.tasks.episodes import EPISODES, EpisodesConfig

__all__ = ["BuildEpisodes", "EpisodesConfig"]


class BuildEpisodes(Stage[EpisodesConfig]):
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
