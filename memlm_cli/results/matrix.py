"""Display of an evaluation by tasks on a terminal."""

from collections.abc import Iterator

from memlm_cli.results.view import ResultTable, View
from memlm_cli.tables import title_of
from stages.artifacts.artifact import Artifact
from stages.charts.training import named_figures
from stages.tasks.frequent_label import (
    FREQUENT_LABEL,
    below_frequent_label,
    frequent_label_scores,
)


class MatrixView(View):
    """The scores after each task and the figures of the stream: percent with a control, or
    perplexities.
    """

    def parts(
        self, artifact: Artifact, title: str, *, verbose: bool
    ) -> Iterator[ResultTable | str]:
        metrics = artifact.metrics
        form = "{:.2f}" if metrics.get("score") else "{:.1%}"
        several = len(metrics["rows"]) > 1
        memory = "" if several else metrics["rows"][0]["row"]
        yield ResultTable(
            title_of(title, metrics["method"], memory),
            ("", *metrics["tasks"]),
            self._rows(artifact, form, several),
        )
        named = named_figures(metrics)
        for row in metrics["rows"]:
            figures = [
                f"{words} {form.format(row[name])}"
                for name, words in named.items()
                if row[name] is not None
            ]
            yield f"{row['row']}: {', '.join(figures)}"
        yield from below_frequent_label(artifact)

    def _rows(self, matrix: Artifact, form: str, several: bool) -> list[list[str]]:
        metrics = matrix.metrics
        # A single column names a row, so that each part of a split table begins with it.
        after = ["before", *(f"after {task}" for task in metrics["tasks"])]
        rows = []
        for row in metrics["rows"]:
            for index, scores in zip(metrics["after"], row["matrix"], strict=True):
                name = f"{row['row']} {after[index]}" if several else after[index]
                rows.append([name, *map(form.format, scores)])
        control = frequent_label_scores(matrix)
        if control is not None:
            rows.append([FREQUENT_LABEL, *map(form.format, control)])
        return rows
