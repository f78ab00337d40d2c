"""Display of a model on a terminal."""

from collections.abc import Iterator

from memlm_cli.results.view import Figures, ResultTable, View
from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError
from stages.reports.remarks.table import MODEL, remarks_on


class ModelView(View):
    """Figures, with remarks on its training."""

    told_in_words = frozenset({"passes", "still_falling"})

    def parts(
        self, artifact: Artifact, title: str, *, verbose: bool
    ) -> Iterator[ResultTable | str]:
        yield from super().parts(artifact, title, verbose=verbose)
        head = artifact.config.get("model", {}).get("head")
        figures = {**artifact.metrics, **_validated(artifact), "head": head}
        for remark in remarks_on(MODEL, figures):
            yield remark.text


def _validated(model: Artifact) -> Figures:
    """The validation split of a model, and its share of unknown tokens; empty if the tokens are
    gone.
    """
    if model.metrics.get("valid_perplexity") is None:
        return {}
    try:
        rate = model.input("tokens").metrics["splits"]["valid"]["unknown_rate"]
    except ArtifactError:
        return {}
    return {"split": "valid", "unknown_rate": rate}
