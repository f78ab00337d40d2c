"""Figures of a report, drawn from its `metrics.json` and `passage.json`: each as SVG and PNG, its numbers as CSV.

As in Grave et al. 2017 (Improving Neural Language Models with a Continuous Cache, arXiv:1612.04426),
figures 2 to 5, and Yogatama et al. 2021 (SPALM, arXiv:2102.02557), figures 5 and 6.
"""

from collections.abc import Mapping
from typing import Any

from stages.charts.figures.canvas import Add, style
from stages.charts.figures.curves import draw_curves, draw_weights
from stages.charts.figures.gate import draw_gate_histogram, draw_gate_passage
from stages.charts.figures.heat_map import draw_heat_map
from stages.charts.tuning_result import tuning_result

__all__ = ["draw_figures"]


def draw_figures(report: Mapping[str, Any], add: Add, passage: Mapping[str, Any] | None = None) -> list[str]:
    """Draw what a report has the numbers for; the same numbers give the same bytes.

    `heat-map`: perplexity of the tuning split over scale and weight, where there are two of each.
    `perplexity-by-lambda` or `-alpha`: its column at the best scale.
    `perplexity-by-size`, `-k` or `-neighbors`: of the scored split, where a curve has two points.
    `gate-histogram`, `gate-passage`: of a model with a gate.

    Args:
        report: the content of `metrics.json`.
        passage: the content of `passage.json`, if there is one.
        add: where to write a file of the report, such as `figures/heat-map.svg`.
    Returns: the files, relative to the report.
    """
    with style():
        tuning = tuning_result(report)
        files = [] if tuning is None else [*draw_heat_map(tuning, add), *draw_weights(tuning, add)]
        for over in ("size", "k", "neighbors"):
            files += draw_curves(report, over, add)
        files += draw_gate_histogram(report, add)
        return files if passage is None else files + draw_gate_passage(passage, add)
