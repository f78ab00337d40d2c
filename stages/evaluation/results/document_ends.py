"""Tokens that end documents: `<eos>`, and the end of the line right before it, which foretells it."""

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.lineage.corpus import token_text
from stages.text.tokens import open_split


def end_tokens(tokens: Artifact, split: str) -> np.ndarray | None:
    """Whether each of a split's T tokens ends a document, bool [T]; None where documents have no `<eos>` of their own.

    A token that is white space with a line break counts where `<eos>` follows it: where lines are documents there is
    one in each, and `<eos>` is certain behind it.
    """
    if tokens.metrics["eos_after"] != "document":
        return None
    opened = open_split(tokens.zarr("tokens.zarr"), split)
    ids, offsets = np.asarray(opened.ids[:]), np.asarray(opened.doc_offsets[:])
    last = offsets[1:] - 1
    last = last[ids[last] == tokens.metrics["eos_id"]]
    before = last[~np.isin(last, offsets[:-1])] - 1  # a document of <eos> alone has none
    text = token_text(tokens)
    breaks = [id for id in np.unique(ids[before]).tolist() if _is_line_end(text.label(id))]
    ends = np.zeros(len(ids), bool)
    ends[last] = True
    ends[before[np.isin(ids[before], breaks)]] = True
    return ends


def _is_line_end(text: str) -> bool:
    return "\n" in text and text.isspace()
