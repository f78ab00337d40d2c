"""Rows of the added split, encoded as build-datastore encodes one."""

import numpy as np

from stages.artifacts.kinds import ADDED
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import ShardJob
from stages.encoding.stored_rows import VALUE_DTYPE, require_finite
from stages.updating.config import UpdateConfig
from stages.updating.work import Work


def encode_added(
    job: ShardJob[UpdateConfig], work: Work, number: int, keys: np.ndarray, values: np.ndarray, output: ShardOutput
) -> None:
    """Fill in the rows of a shard that are tokens of the added split, the last of `keys` [n, d] and `values` [n]."""
    tokens, split = work.plan.added(number), job.config.split
    count = tokens.stop - tokens.start
    if not count:
        return
    assert split is not None
    encoder = work.encoder(job.inputs[ADDED].zarr("tokens.zarr"))
    encoded = encoder.encode_shard(split, tokens, work.plan.added_before(number), work.states, output)
    keys[-count:], values[-count:] = encoded.keys.numpy(), encoded.tokens.numpy().astype(VALUE_DTYPE)
    require_finite(keys[-count:], job.inputs["encoder"])
