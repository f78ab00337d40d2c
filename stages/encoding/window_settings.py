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
from stages.models.config import BackboneConfig, model_of

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
    # a report may repeat the recorded values
    is_usual = context in (None, training_length) and stride in (None, training_length)
    if model.reads.source and not is_usual:
        raise UsageError(
            f"{encoder.reference} ({model.backbone}) reads every pair of sentences whole: leave --context and --stride "
            "out."
        )
    if model.pools and stride not in (None, 1):
        raise UsageError(
            f"{encoder.reference} ({model.backbone}) reads a window for every token: leave --stride {stride} out."
        )

    if context is None:
        context = training_length
    if stride is None:
        stride = 1 if model.pools else context
    _require_readable(encoder, model, context, stride, segmented)

    carried, remembered = model.lengths
    if mem_length is None:
        mem_length = carried
    elif carried is None:
        raise UsageError(
            f"{encoder.reference} ({model.backbone}) has no memory of a given length: leave --mem-length out."
        )
    if long_length is None:
        long_length = remembered
    elif remembered is None:
        raise UsageError(
            f"{encoder.reference} ({model.backbone}) {_no_long_memory(model, training_length)}: leave --long-length out."
        )
    windows = WindowSettings(context, stride, mem_length, long_length)
    model.reading(windows)
    return windows


def _require_readable(
    encoder: Artifact, model: BackboneConfig, context: int, stride: int, segmented: bool
) -> None:
    """Check the windows of a model; see `resolve_windows`."""
    if stride > context:
        raise UsageError(f"--stride {stride} is larger than the context, {context}.")
    longest = model.reads.longest_context
    if longest is not None and context > longest:
        raise UsageError(
            f"{encoder.reference} learned {longest} positions; --context {context} is longer."
        )
    if not model.carries_state:
        return

    # other segments are for a memory of a given length, or for a reader that depends on them
    has_fixed_segments = model.lengths.carried is None and not segmented
    is_other_segment = context != encoder.config["segment_length"]
    if stride != context or (is_other_segment and has_fixed_segments):
        idle = "--context and --stride" if model.lengths.carried is None else "--stride"
        raise UsageError(
            f"{encoder.reference} ({model.backbone}) reads a split as one stream: leave {idle} out."
        )


def _no_long_memory(model: BackboneConfig, segment_length: int) -> str:
    """Why a model has no long memory whose length could be changed."""
    if not model.remembers(segment_length):
        return "has no layer with a long memory"
    return (
        "has a memory whose size is settled in training (model.attention), so at test only --context and "
        "--mem-length may change"
    )


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
