"""Display of an index on a terminal."""

from collections.abc import Iterator

from memlm_cli.results.view import ResultTable, View
from stages.artifacts.artifact import Artifact

RECALL = (
    "recall@k: of the k nearest keys of each of these queries, the share that is found; queries/s@k: how many a second "
    "are answered with k of them"
)


class IndexView(View):
    """Figures, with a sentence on what recall means."""

    def parts(
        self, artifact: Artifact, title: str, *, verbose: bool
    ) -> Iterator[ResultTable | str]:
        yield from super().parts(artifact, title, verbose=verbose)
        if "recall" in artifact.metrics:
            yield RECALL
