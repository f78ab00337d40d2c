"""Windows that a model can read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stages.artifacts.artifact import Artifact
from stages.encoding.window_settings import resolve_windows
from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.models.config import parse_model

SEGMENT = 8


def encoder(**settings: Any) -> Artifact:
    """A model of segments of eight tokens, as far as windows are concerned."""
    model = parse_model({"width": 8, "layers": 1, **settings}).sized(10, SEGMENT)
    config = {"segment_length": SEGMENT, "model": model.model_dump()}
    facts = SimpleNamespace(reference="model/one", path=Path("model"), config=config)
    return cast(Artifact, facts)


def windows(model: Artifact, *, segmented: bool = False, **requested: int) -> WindowSettings:
    names = dict.fromkeys(WindowSettings._fields)
    return resolve_windows(model, names | requested, segmented=segmented)


@pytest.mark.parametrize("requested", [{"context": 4}, {"stride": 4}, {"context": 4, "stride": 4}])
def test_a_stream_without_a_memory_of_a_given_length_keeps_its_segments(
    requested: dict[str, int],
) -> None:
    with pytest.raises(UsageError, match="as one stream: leave --context and --stride out"):
        windows(encoder(backbone="lstm"), **requested)


def test_a_reader_of_segments_may_ask_for_others() -> None:
    assert windows(encoder(backbone="lstm"), segmented=True, context=4).context == 4


def test_a_memory_of_a_given_length_reads_segments_of_any_length() -> None:
    model = encoder(backbone="transformer-xl", heads=1, ffn_width=8, mem_length=8)
    assert windows(model, context=4) == (4, 4, 8, None)
    with pytest.raises(UsageError, match="as one stream: leave --stride out"):
        windows(model, stride=4)


def test_windows_that_stand_alone_may_overlap() -> None:
    model = encoder(backbone="transformer", heads=1, ffn_width=8)
    assert windows(model, stride=4) == (8, 4, None, None)
    with pytest.raises(UsageError, match="--stride 9 is larger than the context, 8"):
        windows(model, stride=9)
