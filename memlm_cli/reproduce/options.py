"""How a command is to do its work: what an artifact's settings have otherwise than the command has by itself."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from memlm_cli.reproduce.references import IMPORT
from memlm_cli.reproduce.spelling import all_spelled, differences
from memlm_cli.reproduce.training import training_options
from pipelines.catalogue import stage_of

if TYPE_CHECKING:
    from stages.pages.lineage import Member


def options(command: str, member: "Member") -> Iterator[list[str]]:
    """Settings that differ from what the command does by itself, as options, else as --set."""
    assert member.artifact is not None
    config = dict(member.artifact.config)
    if command == "train":
        yield from training_options(config, "init" in member.inputs)
        return
    if command == "tokenize" and config.get("tokenizer") == "given":
        del config["tokenizer"]
    if command == IMPORT:
        config = {"segment_length": config["segment_length"]}
    if command == "update-datastore":
        config = {name: value for name, value in config.items() if name in ("split", "forget", "precision")}
    yield from all_spelled(command, differences(config, stage_of(command).Config().model_dump(mode="json")))
