"""Text in memory as the passes of `tokenize` see it."""

import numpy as np
from hypothesis import HealthCheck, settings

from stages.text.documents import BOUNDARIES, MarkedPiece, mark
from stages.text.files import pieces
from stages.text.spool import Pieces

examples = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Few and patient: a busy machine is no failure."""


def marked(text: str, rule: str = "file") -> list[MarkedPiece]:
    return list(mark(pieces([text]), BOUNDARIES[rule]))


def as_pieces(text: str, rule: str = "file") -> Pieces:
    found = marked(text, rule)
    return Pieces(
        [piece.text for piece in found], np.array([piece.marks for piece in found], np.uint8)
    )
