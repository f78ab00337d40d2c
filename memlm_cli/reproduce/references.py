"""Inputs of a command: artifacts of the lineage, and files of text, which the user has to name."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from memlm_cli.trial import TRIALS
from stages.artifacts.kinds import ADDED, PREVIOUS
from stages.text.names import names_in
from stages.text.tokens import SPLITS

if TYPE_CHECKING:
    from stages.pages.lineage import Member

Members = Mapping[str, "Member"]

IMPORT = "import-model"
MOST_NAMED = 5
"""Files of a text that a script names."""


class Variable(str):
    """A word of a command that the shell is to expand; all others are quoted."""


def references(member: "Member", members: Members) -> Iterator[list[str]]:
    """The words that name what an artifact is made from, those together that belong together."""
    kinds = {
        "tokens": _texts,
        "model": _learnt_from,
        "datastore": _encoded,
        "index": _indexed,
        "neighbors": _looked_up,
        "batches": lambda member, _: [[member.inputs["tokens"]]],
        "report": _read,
    }
    yield from kinds[member.kind](member, members)


def _texts(member: "Member", _: Members) -> Iterator[list[str]]:
    """Files by split, or one corpus that is cut; and the tokenizer, where it was given."""
    assert member.artifact is not None
    prefix = re.sub(r"\W+", "_", member.label if member.names else f"text_{member.id}").upper()
    prefix = prefix if prefix[:1].isalpha() else f"TEXT_{prefix}"
    if member.artifact.config.get("split") is not None:
        yield [_text_variable(prefix, member)]
    else:
        for split in (split for split in SPLITS if split in member.artifact.metrics["splits"]):
            yield [f"--{split}", _variable(f"{prefix}_{split.upper()}", f"file or folder of the {split} split")]
    if "tokenizer" in member.inputs:
        yield ["--tokenizer", member.inputs["tokenizer"]]
    elif member.artifact.config.get("tokenizer") == "given":
        yield ["--tokenizer", _variable(f"{prefix}_TOKENIZER", "tokenizer.json")]


def _text_variable(name: str, member: "Member") -> Variable:
    """The text that was cut into splits: the part that `memlm try` keeps of one, or the user's, by the files' names."""
    assert member.artifact is not None
    called = list(dict.fromkeys(file for split in SPLITS for file in names_in(member.artifact.path, split)))
    plain = [file for file in called if re.fullmatch(r"[\w. -]+", file)]
    if len(called) == len(plain) == 1:
        kept = next(member.artifact.store.root.glob(f"{TRIALS}/*/{called[0]}"), None)
        if kept is not None and re.fullmatch(r"[\w./ -]+", str(kept)):
            return Variable(f'"${{{name}:-{kept}}}"')
    named = f", {', '.join(plain)}" if called and plain == called and len(plain) <= MOST_NAMED else ""
    return _variable(name, f"file or folder of text{named}")


def _variable(name: str, what: str) -> Variable:
    """A shell variable that the user has to set."""
    return Variable(f'"${{{name}:?{what}}}"')


def _learnt_from(member: "Member", _: Members) -> Iterator[list[str]]:
    if member.artifact is not None and member.artifact.manifest.stage == IMPORT:
        yield [_variable(f"MODEL_{member.id.upper()}", "folder, .gguf file or hf:NAME"), member.inputs["tokens"]]
        return
    yield [next(member.inputs[role] for role in ("neighbors", "batches", "tokens") if role in member.inputs)]
    if "init" in member.inputs:
        yield ["--init-from", member.inputs["init"]]


def _encoded(member: "Member", members: Members) -> Iterator[list[str]]:
    if PREVIOUS in member.inputs:
        yield [member.inputs[PREVIOUS]]
        yield from ([["--add", member.inputs[ADDED]]] if ADDED in member.inputs else [])
        return
    encoder = member.inputs["encoder"]
    yield [encoder]
    yield from _other_tokens(member.inputs["corpus"], encoder, members)


def _indexed(member: "Member", members: Members) -> Iterator[list[str]]:
    datastore = member.inputs["datastore"]
    yield [datastore]
    if PREVIOUS in member.inputs:
        yield ["--update", member.inputs[PREVIOUS]]
    elif datastore in members and PREVIOUS in members[datastore].inputs:
        yield ["--update", "none"]


def _looked_up(member: "Member", members: Members) -> Iterator[list[str]]:
    index = member.inputs["index"]
    yield [index]
    datastore = members[index].inputs.get("datastore", "")
    encoder = members[datastore].inputs.get("encoder", "") if datastore in members else ""
    yield from _other_tokens(member.inputs["queries"], encoder, members)


def _read(member: "Member", members: Members) -> Iterator[list[str]]:
    """Where the memory's encoder is the model that is scored, the memory; else the model, and the memory by option."""
    inputs = member.inputs
    if "gate_neighbors" in inputs:
        yield from _read_through_gate(inputs, members)
    else:
        memory = next((role for role in ("neighbors", "index") if role in inputs), None)
        if memory and inputs["encoder"] == inputs["model"]:
            yield [inputs[memory]]
        else:
            yield [inputs["model"]]
            yield from ([[f"--{memory}", inputs[memory]]] if memory else [])
    yield from _other_tokens(inputs["tokens"], inputs["model"], members)
    if "baseline" in inputs:
        yield ["--baseline", inputs["baseline"]]


def _read_through_gate(inputs: Mapping[str, str], members: Members) -> Iterator[list[str]]:
    """`--neighbors` names what the gate reads, and the memory where there is no `--index`."""
    gate = inputs["gate_neighbors"]
    if inputs.get("neighbors", gate) != gate:
        yield [inputs["neighbors"]]
    else:
        yield [inputs["model"]]
        if "neighbors" not in inputs and "index" in inputs:
            yield ["--index", inputs["index"]]
    if inputs["model"] not in members or members[inputs["model"]].inputs.get("neighbors") != gate:
        yield ["--neighbors", gate]


def _other_tokens(tokens: str, model: str, members: Members) -> Iterator[list[str]]:
    """`--tokens`, unless they are those that the model learnt from."""
    if model not in members or members[model].inputs.get("tokens") != tokens:
        yield ["--tokens", tokens]
