"""Models that go by a name of their own and are a Transformer-XL with a layer that remembers. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.errors import UsageError
from stages.models import NAMED, backbone_of


def spelled_out(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings of a model, and for a `backbone` that is such a name what it stands for: as it is stored.

    Raises: UsageError if they ask for another attention.
    """
    name = settings.get("backbone")
    if not isinstance(name, str) or name not in NAMED:
        return settings
    attention = settings.get("attention", {})
    if not isinstance(attention, Mapping):
        attention = dict(attention)
    if attention.get("name", NAMED[name]) != NAMED[name]:
        raise UsageError(
            f"The backbone {name!r} is a {backbone_of(name)} with attention {NAMED[name]!r}: leave it or "
            f"model.attention.name={attention['name']} out."
        )
    return {**settings, "backbone": backbone_of(name), "attention": {"name": NAMED[name], **attention}}
