"""Reports as columns and as pages."""

from typing import Any

from memlm_cli.console import ConsoleReporter
from memlm_cli.notebook.artifacts import Artifact
from memlm_cli.notebook.columns import Columns, columns
from memlm_cli.notebook.pages import Page, Picture


class Report(Artifact):
    """A report."""

    def table(self) -> Columns:
        """A row for the model alone and for each memory: perplexity, bits a character, …

        `counting` is the perplexity of a trigram of all the text that the row may read.
        """
        from stages.evaluation.figures.row_names import COUNTING, counting

        rows = [{**row, COUNTING: counting(row)} for row in self._stored.json("metrics.json")["rows"]]
        plain = [name for name, value in rows[0].items() if isinstance(value, str | int | float) or value is None]
        return columns([{name: row.get(name) for name in plain} for row in rows])

    def tokens(self) -> Columns:
        """Every scored token, of a report with `save_token_scores`: `id`, `token`, `logp`, `logp_lm`, `gain`, …

        Log-probabilities in nats; `logp_memory_1`, … are those within each reading's memory.
        """
        import numpy as np

        from stages.evaluation.figures.token_scores import open_scores
        from stages.lineage.corpus import token_text

        open_scores(self._stored, "final")
        group: Any = self._stored.zarr("scores.zarr")
        held = {name: group[name][:] for name in group.array_keys()}
        ids, memory = held.pop("target"), held.pop("logp_memory", None)
        text = token_text(self._stored.input("tokens"))
        labels = {int(id): text.label(int(id)) for id in np.unique(ids)}
        found = {"id": ids, "token": np.array([labels[id] for id in ids.tolist()], object), **held}
        found["gain"] = held["logp"] - held["logp_lm"]
        for number in range(0 if memory is None else memory.shape[1]):
            found[f"logp_memory_{number + 1}"] = memory[:, number]
        return found

    def page(self) -> Page:
        """The page of `memlm report`; a notebook shows it."""
        with ConsoleReporter("report", soon=True):
            from memlm_cli.comparison_text import baseline_remarks
            from memlm_cli.reproduce import script
            from stages.pages.page import build_page

            made = build_page([self._stored], script, baseline_remarks)
        return Page(made.html, {figure.name: Picture(figure.svg, figure.title) for figure in made.figures})

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()
