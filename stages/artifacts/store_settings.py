"""Settings of a store's owner for every command that reads it: `store.toml` in its folder."""

from pathlib import Path

from pydantic import ValidationError

from stages.config import Settings, read_toml
from stages.errors import UsageError, did_you_mean

STORE_SETTINGS = "store.toml"


class StoreSettings(Settings):
    """How a store is read; nothing of it changes a result."""

    verify_inputs: bool = False
    """Whether every command hashes what it reads before it uses it, instead of trusting files that look unchanged."""


def read_store_settings(root: Path) -> StoreSettings:
    """The settings of a store. Raises: UsageError for a file that holds something else."""
    path = root / STORE_SETTINGS
    if not path.exists():
        return StoreSettings()
    table = read_toml(path)
    for name in table.keys() - StoreSettings.model_fields.keys():
        raise UsageError(f"{path}: there is no setting {name!r}; {did_you_mean(name, StoreSettings.model_fields)}")
    try:
        return StoreSettings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
