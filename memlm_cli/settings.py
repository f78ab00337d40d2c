"""Settings of one command: its --config file, then --set, then its own options."""

from collections.abc import Mapping
from typing import Any

from memlm_cli.options import Common
from pipelines.settings import Settings, assignment, merged, nested
from stages.config import read_toml


def given_settings(common: Common, options: Mapping[str, Any]) -> Settings:
    """All that a user said about a stage's configuration, as nested tables; what is not said has its default.

    Args:
        common: has --config, --set and --precision.
        options: the command's own options by the (dotted) name of the setting; None: not given.
    """
    file = read_toml(common.config) if common.config else {}
    return merged(file, *(assignment(text) for text in common.set or ()), nested(options))
