"""Every option of every command with values that nobody expects: refused before work, or a result."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import typer

from tests.endurance.campaign.case import Case, Verdict, judge
from tests.endurance.campaign.mutate import HUGE, NUMBERS, TEXTS
from tests.endurance.campaign.world import FILES, STAGES

COMMANDS = {
    "tokenize": ["tokenize", *FILES],
    "train": [
        part for part in STAGES["model"] if part != "--checkpoint-seconds" and part != "0.01"
    ],
    "build-datastore": STAGES["datastore"],
    "build-index": STAGES["index"],
    "precompute-neighbors": STAGES["neighbors"],
    "pack-batches": STAGES["batches"],
    "update-datastore": STAGES["exchanged"],
    "evaluate": ["evaluate", "{index}"],
    "inspect": ["inspect", "{neighbors}", "--position", "8", "--length", "4"],
    "generate": [
        "generate",
        "{index}",
        "--prompt",
        "the cat",
        "--max-tokens",
        "3",
        "--device",
        "cpu",
    ],
    "compare": ["compare", "{report}", "{recent}", "--samples", "50"],
    "report": ["report", "{report}", "--output", "page.html"],
    "run": ["run", "recipe.toml"],
    "artifacts list": ["artifacts", "list"],
    "artifacts show": ["artifacts", "show", "{model}"],
    "artifacts verify": ["artifacts", "verify"],
    "artifacts graph": ["artifacts", "graph"],
    "artifacts rm": ["artifacts", "rm", "{recent}"],
    "artifacts gc": ["artifacts", "gc", "--dry-run"],
    "presets": ["presets"],
}
"""A command of every kind that ends well."""
RECIPE = """
description = "small"
[stages.tokens]
command = "tokenize"
from = ["train.txt"]
settings = { tokenizer = "char", split = [0.8, 0.1, 0.1], documents = "line" }
[stages.batches]
command = "pack-batches"
from = "tokens"
settings = { segment_length = 8 }
"""
NEVER = {"--help", "--open"}
WORK = {
    "--steps",
    "--epochs",
    "--samples",
    "--accumulate",
    "--max-tokens",
    "steps",
    "epochs",
    "accumulate",
}
"""How much is to be done: large numbers are right, and long."""
VALUES = [
    *('"x"', "true", "[]", "[1, 2]", "{}", "{a = 1}", "nan", "inf", "-inf", "''"),
    *("1979-05-27", "[" * 3000, "'''a", "\\", *NUMBERS),
]
"""In TOML."""
READINGS = [
    *(
        "",
        "knn-lm",
        "external",
        "long",
        "trime",
        "neural-cache",
        "none",
        "local",
        "external+long",
        "x",
        "+",
        "a:b:c",
    ),
    *("exact", "exact-stream", "exact-stream+exact", "similar-pairs"),
]
SETTINGS = [
    *(
        "",
        "lambda",
        "temperature",
        "k",
        "size",
        "theta",
        "alpha",
        "window",
        "metric",
        "exact",
        "x",
        "memory",
        "key",
    ),
    *("matches", "pairs", "pointers", "searched"),
]
FACTORIES = [
    *(
        "PCA100,Flat",
        "PCA4,Flat",
        "NSG16",
        "HNSW0",
        "HNSW99999999",
        "IVF99999999,Flat",
        "IVF4,PQ3",
        "IVF4,",
        ",Flat",
    ),
    *("LSH", "OPQ8_64,IVF4,PQ8"),
    *(
        "PQ8x99",
        "PQ4x4",
        "IDMap,Flat",
        "IDMap2,Flat",
        "RR4,Flat",
        "IVF4_HNSW32,Flat",
        "SQ8",
        "SQ3",
        "Refine",
    ),
    *("IVF4,Flat,RFlat", "L2norm,Flat"),
    *("BIVF4", "BFlat", "RCQ2x4,Flat", "PQ" * 50_000, "(" * 50_000, "Flat" * 20_000),
]
"""Kinds of index that FAISS knows, or nearly."""
GRID = ",".join(
    f"{name}=" + "/".join(f"{number / unit:g}" for number in range(1, 301))
    for name, unit in (("k", 1), ("temperature", 1), ("lambda", 1000))
)
"""27 million points."""
EXAMPLES = [
    ["tokenize", *FILES, "--tokenizer", "bpe", "--vocab-size", "9" * 23],
    [*COMMANDS["train"], "--seed", str(2**64)],
    [*COMMANDS["train"], "--set", "model.layers=10000000"],
    [*COMMANDS["train"], "--set", f"model.width={2**62}"],
    [
        "train",
        "{batches}",
        "--method",
        "trime-ext",
        "--steps",
        "4",
        "--set",
        "memory.temperature=1e-30",
    ],
    ["build-index", "{datastore}", "--index", "PCA100,Flat"],
    ["build-index", "{datastore}", "--index", "NSG16"],
    ["build-index", "{datastore}", "--index", "PQ" * 50_000],
    ["tokenize", *FILES, "--store", "/proc/x"],
    ["tokenize", *FILES, "--store", ""],
    [*COMMANDS["train"], "--batch-tokens", str(8 * 10**8)],
    ["train", "{tokens}", "--segment-length", str(2**30), "--batch-tokens", str(2**30)],
    [*COMMANDS["train"], "--set", "model.ffn_width=1000000000"],
    ["evaluate", "{lstm}", "--context", str(10**12)],
    ["evaluate", "{index}", "--memory", "external:" + GRID],
    ["build-index", "{datastore}", "--index", "IVF4_NSG16,Flat"],
    ["generate", "{lstm}", "--prompt", "\udcff", "--max-tokens", "2"],
    ["compare", "{report}", "{recent}", "--block-tokens", "9" * 23],
    ["compare", "{report}", "{recent}", "--samples", "9" * 23],
    ["precompute-neighbors", "{index}", "--k", str(2**63)],
    ["evaluate", "{model}", "--memory", f"exact:matches={10**11},lambda=0.3"],
    ["build-index", "{tokens}", "--index", "exact", "--recall", "5"],
    ["build-index", "{exchanged}", "--merge", "{neighbors}", "--index", "IVF4,Flat"],
    ["tokenize", "nowhere\x1b[31m.txt"],
]
"""What has ended badly once, or nearly."""


def bad_options(case: Case) -> Verdict:
    """A command that works, with one or two more options, or one option's value changed."""
    case.world.copy(case.store)
    (case.folder / "recipe.toml").write_text(RECIPE)
    arguments = case.random.choice(EXAMPLES) if case.random.random() < 0.15 else _arguments(case)
    arguments = [case.world.filled(argument) for argument in arguments]
    stdin = case.random.choice([b"", b"", b"\xff\xfe", b"tokens/x\n", b"\n" * 1000, b"the cat"])
    case.note(
        " ".join(
            argument if len(argument) < 80 else argument[:60] + f"…({len(argument)})"
            for argument in arguments
        )
    )
    return judge(case.memlm(*arguments, stdin=stdin))


def _arguments(case: Case) -> list[str]:
    name = case.random.choice(list(COMMANDS))
    arguments = list(COMMANDS[name])
    for _ in range(case.random.choice([1, 1, 2])):
        arguments += _option(case, name)
    if case.random.random() < 0.1:
        arguments[case.random.randrange(1, len(arguments))] = case.random.choice(TEXTS)
    return arguments


def _option(case: Case, name: str) -> list[str]:
    """An option of the command, or another argument, with its hostile value."""
    options = {option.opts[0]: option for option in _options(name)}
    often = [spelled for spelled in ("--set", "--memory", "--index") if spelled in options]
    spelled = case.random.choice([*options, *often * 3])
    option = options[spelled]
    if getattr(option, "is_flag", False):
        return [spelled]
    if spelled == "--config":
        (case.folder / "bad.toml").write_bytes(_toml(case.random))
        return ["--config", case.random.choice(["bad.toml", "bad.toml", "bad.toml", *TEXTS])]
    kind = str(
        getattr(option, "type", None) or option.type_descriptor.annotation
    ).lower()  # of older and newer Typer
    numeric = "int" in kind or "float" in kind
    value = (
        _number(case.random, spelled)
        if numeric and case.random.random() < 0.85
        else _value(case, spelled, name)
    )
    return [value] if option.param_type_name == "argument" else [spelled, value]


def _options(name: str) -> Iterator[Any]:
    from memlm_cli.app import app

    command: Any = typer.main.get_command(app)
    for part in name.split():
        command = command.commands[part]
    return (option for option in command.params if option.opts[0] not in NEVER)


def _value(case: Case, option: str, name: str) -> str:
    random = case.random
    if option == "--set":
        return _setting(random, name)
    if option == "--index" and name == "build-index":
        return random.choice([*FACTORIES, *TEXTS])
    if option == "--memory":
        return random.choice(READINGS) + _numbers(random)
    if option == "--store" and random.random() < 0.5:
        return random.choice(
            [
                "",
                "/proc/x",
                "train.txt",
                "train.txt/store",
                "x" * 300,
                "\udcff",
                "../case/store",
                ".",
            ]
        )
    references = [
        *(made.reference for made in case.world.made.values()),
        "strangers",
        "store/tokens",
        "tokens/none",
    ]
    return random.choice(
        [[_number(random, option)], TEXTS, references, [_odd_list(random)]][random.randrange(4)]
    )


def _number(random: Random, option: str) -> str:
    return random.choice([number for number in NUMBERS if option not in WORK or number not in HUGE])


def _numbers(random: Random) -> str:
    pairs = [
        f"{random.choice(SETTINGS)}={random.choice([*NUMBERS, 'tune', '', 'x', '1,2'])}"
        for _ in range(3)
    ]
    return ":" + ",".join(pairs[: random.randint(0, 3)]) if random.random() < 0.8 else ""


def _odd_list(random: Random) -> str:
    return ",".join(
        random.choices(
            ["train", "valid", "test", "", "x", "0.5", "1", "-1", "nan", "self", "window:3"], k=3
        )
    )


def _setting(random: Random, name: str) -> str:
    """`dotted.name=VALUE`, mostly of a setting that the command has."""
    from pipelines.catalogue import stage_of
    from stages.artifacts.kinds import COMMANDS as stages

    known = (
        list(stage_of(name).Config.model_fields)
        if name in stages
        else ["tokens.tokenizer", "batches.k"]
    )
    deeper = ["model", "optimizer", "schedule", "memory"]
    below = [
        "layers",
        "width",
        "lr",
        "name",
        "dropout",
        "temperature",
        "warmup",
        "backbone",
        "heads",
        "x",
        "betas",
    ]
    key = random.choice(
        [*known, *known, f"{random.choice(deeper)}.{random.choice(below)}", "", "a.b.c.d", "seed"]
    )
    values = [value for value in VALUES if key not in WORK or value not in HUGE]
    return f"{key}{random.choice(['=', '=', '=', '=', ''])}{random.choice(values)}"


def _toml(random: Random) -> bytes:
    lines = [_setting(random, "train") for _ in range(random.randint(0, 3))]
    junk = [
        b"\xff\xfe",
        b"a" * 100_000,
        b"a = " + b"[" * 50_000,
        b"a." * 20_000 + b"b = 1",
        b"[x]\n[x]",
        b"\0",
    ]
    text = "\n".join(lines).encode("utf-8", "replace")
    return random.choice([text, text, random.choice(junk), json.dumps({"a": 1}).encode()])


ATTACKS = {"bad-options": bad_options}
