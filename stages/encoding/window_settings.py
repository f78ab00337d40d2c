"""Settings for reading a split with a model: length of windows, stride, and lengths of the carried
state.

Free of torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Shard
from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.models.config import model_of
from stages.models.layers.settings import remembers

STATES_KEPT = 3
"""Maximum number of carried states on disk while a split is encoded: the current one, and those of
two shards.
"""


def resolve_windows(
    encoder: Artifact, requested: Mapping[str, int | None], *, segmented: bool = False
) -> WindowSettings:
    """Windows for a model. Defaults: `context` is its segment length, `stride` the context, other
    lengths its own.

    A pooling model has a window for every token: its stride is 1.

    Args:
        requested: requested values, by the names of `WindowSettings`; None: not requested.
        segmented: whether the reader depends on the segments of a stream (`local` memory).
    Raises: UsageError for a stride larger than the context, a context longer than the model's
        learned positions, overlapping windows for a backbone that reads a split as one stream, a
        memory length if it has none, or lengths that its layers cannot read.
    """
    context, stride, mem_length, long_length = (requested[name] for name in WindowSettings._fields)
    training_length = encoder.config["segment_length"]
    model = model_of(encoder)
    if model.reads.source and not {context, stride} <= {
        None,
        training_length,
    }:  # a report may repeat the recorded values
        raise UsageError(
            f"{encoder.reference} ({model.backbone}) reads every pair of sentences whole: leave --context and --stride "
            "out."
        )
    if model.pools and stride not in (None, 1):
        raise UsageError(
            f"{encoder.reference} ({model.backbone}) reads a window for every token: leave --stride {stride} out."
        )
    context = training_length if context is None else context
    stride = (1 if model.pools else context) if stride is None else stride
    if stride > context:
        raise UsageError(f"--stride {stride} is larger than the context, {context}.")
    if model.reads.longest_context is not None and context > model.reads.longest_context:
        raise UsageError(
            f"{encoder.reference} learned {model.reads.longest_context} positions; --context {context} is longer."
        )
    carried, remembered = model.lengths
    if model.carries_state and (
        stride != context or (context != training_length and not segmented and carried is None)
    ):
        idle = "--context and --stride" if carried is None else "--stride"
        raise UsageError(
            f"{encoder.reference} ({model.backbone}) reads a split as one stream: leave {idle} out."
        )
    if mem_length is not None and carried is None:
        raise UsageError(
            f"{encoder.reference} ({model.backbone}) has no memory of a given length: leave --mem-length out."
        )
    if long_length is not None and remembered is None:
        why = "has no layer with a long memory"
        if remembers(model, training_length):
            why = (
                "has a memory whose size is settled in training (model.attention), so at test only --context and "
                "--mem-length may change"
            )
        raise UsageError(f"{encoder.reference} ({model.backbone}) {why}: leave --long-length out.")
    windows = WindowSettings(
        context,
        stride,
        carried if mem_length is None else mem_length,
        remembered if long_length is None else long_length,
    )
    model.reading(windows)
    return windows


def shard_unit(encoder: Artifact, stride: int) -> int:
    """Unit of the shards of encoded text, in tokens: the stride, or 1 if a split is one stream."""
    return 1 if model_of(encoder).carries_state else stride


def state_bytes(encoder: Artifact, windows: WindowSettings, tokens: int) -> int:
    """Largest state, in bytes, that a model carries between ranges of `tokens` tokens; 0: none."""
    segments = (
        -(-tokens // windows.context) * windows.context
    )  # some lengths must be multiples of a segment
    carried, remembered = (
        None if length is None else min(length, segments)
        for length in (windows.mem_length, windows.long_length)
    )
    model = model_of(encoder).reading(windows._replace(mem_length=carried, long_length=remembered))
    return model.state_bytes(windows.context)


@dataclass(frozen=True)
class TokenRange(Shard):
    """Tokens [start, stop) of a split."""

    start: int
    stop: int

    @property
    def amount(self) -> int:
        return self.stop - self.start

    @property
    def unit(self) -> str:
        return "tokens"
