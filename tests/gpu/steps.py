"""The steps of the campaign, in the order of what they decide: what each asks, its commands, the
figures it keeps.

Commands hold names in braces: `{device}`, the sizes of `FULL` or `TINY`, and of a training
`{steps}`, which follow from `minutes` and the speed of a short training of the same model on this
machine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

Sizes = Mapping[str, int | str]

FULL: Sizes = {
    "layers": 12,
    "width": 512,
    "heads": 8,
    "segment": 512,
    "batch": 16384,
    "long_segment": 3072,
    "long_batch": 24576,
    "middle_segment": 1024,
    "middle_batch": 8192,
    "effect_layers": 8,
    "xl_batch": 16384,
    "few": 2048,
    "many": 8192,
    "slots": 512,
    "keys": 4_194_304,
    "more_keys": 16_777_216,
    "most_keys": 67_108_864,
    "many_dim": 512,
    "list_length": 6287,
    "block": 32768,
    "wanted": 103_000_000,
    "lists": 2048,
    "queries": 32768,
    "few_queries": 4096,
    "host_ks": "4,64,1024",
    "search_ks": "4 64 1024",
    "limits": "512 2048 8192",
    "cells_width": 1024,
    "rounds": 5,
    "small_layers": 8,
    "small_width": 128,
    "small_heads": 8,
    "middle_layers": 12,
    "middle_width": 512,
    "middle_heads": 8,
    "large_layers": 12,
    "large_width": 768,
    "large_heads": 12,
    "large_ffn": 3072,
    "near": 256,
    "loop_vocabulary": 32000,
    "vocabulary": 8192,
    "updates": 800,
    "many_updates": 4000,
    "epochs": 10,
    "suite_files": "",
    "suite_seconds": 490,
    "kernel_files": "tests/stages/memory/in_batch/test_fused.py tests/stages/models/backbones/test_sru_plus_plus.py",
    "processes": "auto",
    "recipe": "quickstart",
    "machine_sizes": "",
}
TINY: Sizes = {
    "layers": 2,
    "width": 16,
    "heads": 2,
    "segment": 16,
    "batch": 64,
    "long_segment": 32,
    "long_batch": 64,
    "middle_segment": 16,
    "middle_batch": 32,
    "effect_layers": 1,
    "xl_batch": 256,
    "few": 32,
    "many": 64,
    "slots": 16,
    "keys": 2048,
    "more_keys": 2048,
    "most_keys": 4096,
    "many_dim": 16,
    "list_length": 64,
    "block": 16,
    "wanted": 8192,
    "lists": 8,
    "queries": 64,
    "few_queries": 32,
    "host_ks": "4",
    "search_ks": "4",
    "limits": "8 64",
    "cells_width": 8,
    "rounds": 1,
    "small_layers": 1,
    "small_width": 16,
    "small_heads": 2,
    "middle_layers": 1,
    "middle_width": 16,
    "middle_heads": 2,
    "large_layers": 1,
    "large_width": 16,
    "large_heads": 2,
    "large_ffn": 32,
    "near": 8,
    "loop_vocabulary": 300,
    "vocabulary": 300,
    "updates": 2,
    "many_updates": 3,
    "epochs": "0.01",
    "suite_files": "tests/stages/test_numbers.py",
    "suite_seconds": 100,
    "kernel_files": "tests/stages/test_numbers.py",
    "processes": 0,
    "recipe": "tests/gpu/tiny.toml",
    "machine_sizes": "--tiny",
}


@dataclass(frozen=True)
class Run:
    """A row of a table: commands, the last of which prints the JSON that the figures are taken
    from.
    """

    row: str
    commands: Sequence[str]
    minutes: Sequence[float] = ()
    """What each training among the commands takes; of those beyond, the commands say the steps."""
    each: str | None = None
    """Place of a list in the JSON: each of its items is a row of its own, called by `row` and its
    `name`.
    """


@dataclass(frozen=True)
class Step:
    """One table: what it asks, and its rows, through within `minutes` on one H100."""

    name: str
    asks: str
    minutes: int
    runs: Sequence[Run]
    figures: Mapping[str, str] = field(default_factory=dict)
    """Column -> place in the JSON, with slashes between names: `ours/ratio`, `rows/-1/perplexity`.
    """
    bars: Sequence[str] = ()
    """Columns that the chart draws; none: those of perplexity."""
    up: str = "perplexity"
    """Unit of the chart."""
    area: str = ""
    """What it is about, among other steps."""

    @property
    def drawn(self) -> Sequence[str]:
        """The columns of the chart, all in one unit."""
        return self.bars or [
            name for name, place in self.figures.items() if place.endswith("perplexity")
        ]


class Only(dict[str, str]):
    """Values for some of the names in braces; the others stay."""

    def __missing__(self, name: str) -> str:
        return "{" + name + "}"


TEXTS = {"code": "source code of sympy", "proofs": "proofs of UniMath", "novels": "novels"}
"""Texts of the campaign: NAME-train.jsonl.xz, NAME-valid.jsonl.xz and NAME-test.jsonl.xz of the
folder of texts.
"""
EVALUATE = "memlm evaluate model/{row} --precision fp32 --device {device} --json"
QUALITY = {
    "perplexity": "rows/0/perplexity",
    "bits a byte": "rows/0/bits_per_byte",
    "counting": "rows/0/control/perplexity",
}


def steps() -> Iterator[Step]:
    """All steps, those first that decide most in little time."""
    for area, made in ORDER:
        for step in made():
            yield replace(step, area=area)


# What works there

COUNTED = ("passed", "failed", "skipped")


def suite() -> Iterator[Step]:
    command = (
        "python -m tests.gpu.suite --seconds {suite_seconds} --processes {processes} {suite_files}"
    )
    figures = {name: name for name in (*COUNTED, "stopped", "seconds")}
    yield Step(
        "suite",
        "Do the tests pass on the GPU?",
        9,
        [Run("tests", [command])],
        figures,
        COUNTED,
        "tests",
    )


def same_figures() -> Iterator[Step]:
    runs = [
        Run("CPU, fp32", ["memlm run {recipe} --device cpu --store {store}/cpu --json"]),
        Run("as it comes", ["memlm run {recipe} --device {device} --store {store}/own --json"]),
    ]
    figures = {"plain": "rows/0/perplexity", "kNN-LM": "rows/1/perplexity"}
    yield Step("same-figures", "Are quickstart's figures those of a CPU?", 5, runs, figures)


def machine() -> Iterator[Step]:
    runs = [
        Run(
            "",
            ["python -m tests.benchmarks.bench_machine --device {device} {machine_sizes}"],
            each="speed",
        )
    ]
    figures = {name: name for name in ("measured", "expected", "unit", "source")} | {
        "of expected": "share"
    }
    asks = "What does the machine reach, and what should it?"
    yield Step("machine", asks, 6, runs, figures, ("of expected",), "measured / expected")


# How fast training is

SHAPES = ("small", "middle", "large")
LOOP = {
    "tokens/s": "ours/tokens_per_second",
    "minimal loop": "minimal/tokens_per_second",
    "ratio": "ours/ratio",
    "of products alone": "ours/of_floor",
}


def _training(shape: str, precision: str, more: str = "") -> Run:
    command = (
        f"python -m tests.benchmarks.bench_training --layers {{{shape}_layers}} --width {{{shape}_width}} "
        f"--heads {{{shape}_heads}} --vocabulary {{loop_vocabulary}} --segment-length {{segment}} "
        f"--batch-tokens {{batch}} --rounds {{rounds}} --precision {precision} --device {{device}}{more}"
    )
    return Run(f"{{{shape}_layers}} x {{{shape}_width}}, {precision}", [command])


def training_loop() -> Iterator[Step]:
    runs = [_training(shape, precision) for shape in SHAPES for precision in ("fp32", "bf16")]
    asks = "Is training as fast as a minimal loop, and as the products allow?"
    yield Step("training-loop", asks, 8, runs, LOOP, ("tokens/s", "minimal loop"), "tokens/s")


def compiled_training() -> Iterator[Step]:
    figures = LOOP | {
        "compiled": "ours, compiled/tokens_per_second",
        "first update, s": "ours, compiled/first_turn",
        "pays after, updates": "ours, compiled/pays_after",
    }
    bars = ("tokens/s", "minimal loop", "compiled")
    for precision in ("bf16", "fp32"):
        runs = [_training(shape, precision, " --compile") for shape in SHAPES]
        if precision == "bf16":
            replayed = _training("small", precision, " --compile --cuda-graphs")
            runs.insert(1, Run(f"{replayed.row}, as CUDA graphs", replayed.commands))
        asks = f"Does --compile pay, and when? {precision}"
        yield Step(f"compiled-training-{precision}", asks, 9, runs, figures, bars, "tokens/s")


def kernel_tests() -> Iterator[Step]:
    runs = [
        Run(
            "beside float64",
            ["python -m tests.gpu.suite --seconds 400 --processes {processes} {kernel_files}"],
        )
    ]
    figures = {name: name for name in (*COUNTED, "stopped", "seconds")}
    yield Step(
        "kernel-tests",
        "Are the kernels in Triton right on the GPU?",
        7,
        runs,
        figures,
        COUNTED,
        "tests",
    )


def kernels() -> Iterator[Step]:
    made = "python -m tests.benchmarks.bench_kernels {case} --rounds {{rounds}} --device {{device}}"
    memory = "--positions {{long_batch}} --segment-length {{long_segment}} --precision {precision}"
    runs = [
        Run(
            f"{case}, {{{shape}_width}} wide, {precision}",
            [
                f"{made} {memory} --width {{{{{shape}_width}}}}".format(
                    case=case, precision=precision
                )
            ],
        )
        for case in ("local", "long", "others")
        for shape, precision in (("small", "bf16"), ("small", "fp32"), ("middle", "bf16"))
    ]
    cells = "--positions {{batch}} --segment-length {{segment}} --width {{cells_width}}"
    runs.append(Run("cells of SRU++, fp32", [f"{made} {cells}".format(case="cells")]))
    shown = (
        "triton, ms",
        "pytorch, ms",
        "floor, ms",
        "to pytorch",
        "of floor",
        "triton, MB",
        "pytorch, MB",
    )
    asks = "How fast are they, and what memory do they take?"
    yield Step("kernels", asks, 8, runs, {name: name for name in shown}, shown[:3], "ms")


def trime_step() -> Iterator[Step]:
    rows = '"transformer trime" "transformer trime-long" "transformer trime-ext"'
    runs = [
        Run(
            f"segments of {{{segment}}}, {precision}",
            [
                f"python -m tests.benchmarks.bench_steps --rows {rows} --segment-length {{{segment}}} "
                f"--batch-tokens {{{batch}}} --precision {precision} --rounds {{rounds}} --device {{device}}"
            ],
        )
        for segment, batch in (("long_segment", "long_batch"), ("middle_segment", "middle_batch"))
        for precision in ("bf16", "fp32")
    ]
    methods = ("trime", "trime-long", "trime-ext")
    figures = {"plain, tokens/s": "rows/transformer lm/tokens_per_second"}
    figures |= {method: f"rows/transformer {method}/to_transformer" for method in methods}
    asks = "What does a step of TRIME take of a plain one?"
    yield Step("trime-step", asks, 6, runs, figures, methods, "steps of a plain model")


# Memory inside the layers, on text


def tokens(text: str) -> str:
    """The command that tokenizes a text; cached where it was done."""
    files = " ".join(
        f"--{split} {{texts}}/{text}-{split}.jsonl.xz" for split in ("train", "valid", "test")
    )
    return f"memlm tokenize {files} --vocab-size {{vocabulary}} --name {text} --json"


LAYERS = {
    "transformer-xl": "",
    "memorizing-many": "--backbone memorizing-transformer --long-length {many}",
    "memorizing-0": "--backbone memorizing-transformer --long-length 0",
    "memorizing-few": "--backbone memorizing-transformer --long-length {few}",
    "compressive": "--backbone compressive-transformer --long-length {slots}",
    "infinity": "--backbone infinity-former",
    "product-keys": "--set model.feed_forward.name=product-keys --set model.feed_forward.layers=[{layers}]",
    "memory-plus": "--set model.feed_forward.name=memory-plus",
    "hashed-ngrams": "--set model.lookup.name=hashed-ngrams --set model.lookup.layers=[1]",
    "memformer": "--backbone memformer",
    "memory-transformer": "--backbone memory-transformer",
    "sru-plus-plus": "--backbone sru++",
    "memsizer": "--backbone transformer --set model.attention.name=memsizer",
}
EXACT = {
    "and a cache": "long:size={few},theta=tune,lambda=tune",
    "and exact-stream": "exact-stream:temperature=tune,lambda=tune",
    "and exact": "exact:temperature=tune,lambda=length",
}
"""Memories, each on top of those before."""
LEARNING = "--segment-length {segment} --batch-tokens {batch} --set valid_every=0 --set optimizer.lr=5e-4 --device {device}"
SHAPE = f"--set model.layers={{layers}} --set model.width={{width}} --set model.heads={{heads}} {LEARNING}"


FEED_FORWARD = "--set model.ffn_width={ffn_width}"


def _trained(text: str, name: str, called: str | None = None) -> list[str]:
    """Commands that train one of the layers on a text, by a name of its own or TEXT-NAME."""
    how = LAYERS[name]
    model = how if how.startswith("--backbone") else f"--backbone transformer-xl {how}"
    inner = "" if "sru++" in how else FEED_FORWARD  # recurrences have no feed-forward layers
    train = f"memlm train tokens/{text} {model} {inner} {SHAPE} --steps {{steps}} --seed 0"
    return [tokens(text), f"{train} --name {called or f'{text}-{name}'} --json"]


def layers(text: str, names: Sequence[str]) -> Iterator[Step]:
    """Layers with the same time to learn: one step a layer, since each has six minutes."""
    for name in names:
        row = f"{text}-{name}"
        made, score = _trained(text, name), EVALUATE.format_map(Only(row=row))
        runs = [Run(row, [*made, score + " --save-token-scores"], minutes=(6,))]
        if name == "memorizing-many":
            runs += [
                Run(f"{row}, read with {n}", [*made, f"{score} --long-length {n}"], (6,))
                for n in ("0", "{few}")
            ]
        yield Step(
            f"layers-{row}",
            f"What does {name} gain on {TEXTS[text]}, in equal time?",
            9,
            runs,
            QUALITY,
        )


def exact(text: str) -> Iterator[Step]:
    """What matches of tokens add to the Transformer-XL among the layers, beyond a cache."""
    row = f"{text}-transformer-xl"
    memories = " ".join(f"--memory {memory}" for memory in EXACT.values())
    read = [
        f"memlm build-index tokens/{text} --index exact --name {text}-exact --json",
        f"{EVALUATE.format_map(Only(row=row))} --index index/{text}-exact --count-orders 5,8 {memories}",
    ]
    figures = {"alone": "rows/0/perplexity"} | {
        name: f"rows/{number}/perplexity" for number, name in enumerate(EXACT, 1)
    }
    runs = [Run(row, [*_trained(text, "transformer-xl"), *read], minutes=(6,))]
    yield Step(f"exact-{text}", f"What do exact matches add on {TEXTS[text]}?", 9, runs, figures)


FIRST = ("transformer-xl", "memorizing-many", "memorizing-0")
"""Layers that decide whether a memory gains on text at all."""


def continued() -> Iterator[Step]:
    """A memory that a trained model goes on with, beside as many updates more without."""
    trained = _trained("code", "memorizing-0", "code-begun")
    runs = []
    for length in ("0", "{many}"):
        row = f"code-continued-{length}"
        more = f"memlm train tokens/code --init-from model/code-begun --long-length {length} {LEARNING}"
        more += f" --steps {{steps}} --seed 0 --name {row} --json"
        runs.append(
            Run(row, [*trained, more, EVALUATE.format_map(Only(row=row))], minutes=(3, 1.5))
        )
    asks = "Does Memorizing gain on code where a trained model goes on with it?"
    yield Step("memorizing-continued", asks, 9, runs, QUALITY)


NAMES = {"without": "first", "with": "second", "gain": "gain", "±": "interval", "tokens": "tokens"}


def names(text: str) -> Iterator[Step]:
    """What a memory gains by how far back a name stood: the weights of `layers`, read with and
    without it.
    """
    row = f"{text}-memorizing-many"
    read = [
        f"{EVALUATE.format_map(Only(row=row))} --long-length {length} --save-token-scores --name {text}-reads-{length}"
        for length in ("0", "{many}")
    ]
    reports = f"report/{text}-reads-0 report/{text}-reads-{{many}}"
    told = f"python -m tests.benchmarks.bench_names {reports} --store {{store}} --limits {{limits}}"
    runs = [Run(row, [*_trained(text, "memorizing-many"), *read, told], minutes=(6,), each="rows")]
    asks = f"What does memory gain on {TEXTS[text]}, by how far back a name stood?"
    yield Step(f"names-{text}", asks, 9, runs, NAMES, ("without", "with"), "nats a token")


# Search


FOUND = {
    "queries/s": "queries",
    "of product and topk": "ratio",
    "recall": "recall",
    "nearest first": "in order",
    "peak, GB": "peak",
}
HOST = {
    "FAISS, queries/s": "FAISS",
    "ours": "ours",
    "products alone": "products",
    "ratio": "ratio",
    "by CPU": "cpu_ratio",
    "shared": "shared",
}


def _among(keys: str, dim: int, queries: str) -> Run:
    command = (
        "python -m tests.benchmarks.bench_device_search --rivals --rounds 1 --device {device} --lists {lists} "
        f"--keys {{{keys}}} --dim {dim} --queries {{{queries}}} --k {{search_ks}}"
    )
    return Run(f"{{{keys}}} keys x {dim}", [command], each="rows")


def search() -> Iterator[Step]:
    asks = "How fast is search beside a product and `topk`, and beside FAISS?"
    runs = [_among("keys", dim, "queries") for dim in (128, 512)]
    yield Step("search", asks, 8, runs, FOUND, ("queries/s",), "queries/s")


def search_more() -> Iterator[Step]:
    runs = [_among("more_keys", 128, "few_queries"), _among("more_keys", 512, "few_queries")]
    yield Step(
        "search-more",
        "And among four times as many keys?",
        9,
        runs,
        FOUND,
        ("queries/s",),
        "queries/s",
    )
    runs = [_among("most_keys", 128, "few_queries")]
    yield Step(
        "search-most",
        "And among sixteen times as many?",
        9,
        runs,
        FOUND,
        ("queries/s",),
        "queries/s",
    )


def search_on_the_host() -> Iterator[Step]:
    lists = "python -m tests.benchmarks.bench_lists --text {texts}/code-train.jsonl.xz --rounds 2"
    lists += " --queries {queries} --k {host_ks}"
    asks = "How fast is search on the host's threads beside FAISS?"
    yield Step(
        "search-host", asks, 8, [Run("", [lists], each="rows")], HOST, tuple(HOST)[:3], "queries/s"
    )


def many_keys() -> Iterator[Step]:
    command = (
        "python -m tests.benchmarks.bench_many_keys --keys {more_keys} {most_keys} --dim {many_dim} "
        "--length {list_length} --queries {block} --wanted {wanted} --device {device}"
    )
    figures = {
        "queries/s": "queries",
        "finds its own key": "own",
        "minutes for all": "minutes",
        "peak, GB": "peak",
    }
    asks = "How long would the neighbours of 103 million tokens of width 512 take?"
    yield Step(
        "neighbors-of-many",
        asks,
        8,
        [Run("", [command], each="rows")],
        figures,
        ("minutes for all",),
        "minutes",
    )


# The papers' effects at a larger size

SIZES = "--set model.layers={effect_layers} --set model.cutoffs=[] --set valid_every=0 --device {device}"
SEGMENTS = "--segment-length {long_segment} --batch-tokens {long_batch}"
SMALL = f"--model wikitext2-8x128 --set model.positions=sinusoidal {SEGMENTS} {SIZES}"
XL = f"--model wikitext2-8x128-xl --batch-tokens {{xl_batch}} {SIZES}"
WINDOW = "local:reader=joint,similarity=scaled-dot,temperature=tune"
READ = {
    "alone": "rows/0/perplexity",
    "with memory": "rows/1/perplexity",
    "counting": "rows/1/control/perplexity",
}
EXTERNAL = READ | {"right at 1": "retrieval_accuracy/1"}


def _long(name: str, more: str, seed: int) -> list[str]:
    """Commands that train on novels in the paper's segments."""
    train = f"memlm train tokens/novels {SMALL} {more} --steps {{updates}} --seed {seed}"
    return [tokens("novels"), f"{train} --name {name} --json"]


def _read(name: str, memory: str, more: str = "") -> str:
    return f"memlm evaluate model/{name} --device {{device}} {more} --json --memory {memory}"


def trime_at_size(seed: int) -> Iterator[Step]:
    plain, trime, long = (f"novels-{name}-{seed}" for name in ("plain", "trime", "trime-long"))
    runs = [
        Run(plain, [*_long(plain, "", seed), _read(plain, "local:theta=tune,lambda=tune")]),
        Run(trime, [*_long(trime, "--method trime", seed), _read(trime, WINDOW)]),
        Run(long, [*_long(long, "--method trime-long", seed), _read(long, "trime-long")]),
    ]
    asks = f"Does TRIME beat a cache of its window on novels? Seed {seed}"
    yield Step(f"trime-novels-{seed}", asks, 9, runs, READ)
    runs = [
        Run(
            "trime-ext",
            [
                tokens("novels"),
                *_external(f"novels-ext-{seed}", f"--steps {{updates}} {SMALL}", seed),
            ],
        )
    ]
    yield Step(f"trime-ext-novels-{seed}", f"And trime-ext? Seed {seed}", 9, runs, EXTERNAL)


def _external(name: str, how: str, seed: int = 0) -> list[str]:
    """Commands that train trime-ext on batches of novels, and read its datastore."""
    return [
        "memlm pack-batches tokens/novels --segment-length {long_segment} --name novels --json",
        f"memlm train batches/novels --method trime-ext --set memory.groups=1 {how} --seed {seed} --name {name} --json",
        f"memlm build-datastore model/{name} --device {{device}} --name {name} --json",
        f"memlm build-index datastore/{name} --metric ip --name {name} --json",
        f"memlm evaluate index/{name} --device {{device}} --memory trime-ext --json",
    ]


NEIGHBORS = [
    tokens("novels"),
    f"memlm train tokens/novels {XL} --steps {{steps}} --seed 0 --name novels-encoder --json",
    "memlm build-datastore model/novels-encoder --key hidden --device {device} --name novels --json",
    "memlm build-index datastore/novels --metric ip --name novels --json",
    "memlm precompute-neighbors index/novels --k 4 --exclude document --device {device} --name novels --json",
]
"""Commands that find SPALM's neighbours with a Transformer-XL that learns longer than what reads
them.
"""
ENCODER = (3,)
"""Minutes that it learns."""


def spalm_at_size(seed: int) -> Iterator[Step]:
    plain, spalm = (f"novels-{name}-{seed}" for name in ("xl", "spalm"))
    how = f"{XL} --steps {{updates}} --seed {seed}"
    trained = [f"memlm train tokens/novels {how} --name {plain} --json"]
    learned = [
        *NEIGHBORS,
        f"memlm train neighbors/novels --method spalm {how} --name {spalm} --json",
    ]
    runs = [
        Run("Transformer-XL", [tokens("novels"), *trained, EVALUATE.format_map(Only(row=plain))]),
        Run("SPALM", [*learned, EVALUATE.format_map(Only(row=spalm))], ENCODER),
    ]
    yield Step(f"spalm-novels-{seed}", f"Does SPALM gain on novels? Seed {seed}", 9, runs, QUALITY)


STUDENT = " ".join(
    (
        "--model wikitext2-8x128-xl --batch-tokens {xl_batch} --set model.cutoffs=[] --set valid_every=0",
        "--set model.layers={large_layers} --set model.width={large_width} --set model.heads={large_heads}",
        "--set model.ffn_width={large_ffn} --device {device}",
    )
)
DISTILLED = {
    "alone": "rows/0/perplexity",
    "and a decoder": "rows/1/perplexity",
    "and its control": "rows/2/perplexity",
    "counting": "rows/1/control/perplexity",
}


def distilled_at_size(seed: int) -> Iterator[Step]:
    """A large student of a model's neighbours, beside one that learned without them."""
    taught, control = (f"novels-{name}-{seed}" for name in ("taught", "control"))
    learn = f"memlm train neighbors/novels-near --method memory-decoder {STUDENT} --seed {seed}"
    commands = [
        *NEIGHBORS[:-1],
        "memlm precompute-neighbors index/novels --queries train --k {near} --exclude document --device {device} "
        "--name novels-near --json",
        f"{learn} --steps {{updates}} --set memory.alpha=0 --name {control} --json",
        f"{learn} --steps {{updates}} --name {taught} --json",
        f"memlm evaluate model/novels-encoder --memory decoder:model=model/{taught},lambda=tune --device {{device}} "
        "--json",
    ]
    asks = f"Do neighbours teach a decoder more than its text does? Seed {seed}"
    runs = [Run("novels", commands, ENCODER)]
    yield Step(f"distilled-novels-{seed}", asks, 9, runs, DISTILLED)


# Questions that small models left open


def open_questions() -> Iterator[Step]:
    constant = [f"novels-constant-{seed}" for seed in range(3)]
    how = "--method trime --set memory.backpropagate=false"
    runs = [
        Run(name, [*_long(name, how, seed), _read(name, WINDOW)])
        for seed, name in enumerate(constant)
    ]
    yield Step(
        "trime-constant",
        "Is back-propagation into memory worth it at segments of 3,072?",
        9,
        runs,
        READ,
    )
    xl, score = (
        _trained("code", "transformer-xl"),
        EVALUATE.format_map(Only(row="code-transformer-xl")),
    )
    lengths = ("{segment}", "{middle_segment}", "{long_segment}")
    runs = [
        Run(f"read with M = {length}", [*xl, f"{score} --mem-length {length}"], minutes=(6,))
        for length in lengths
    ]
    yield Step(
        "longer-cache", "Does a Transformer-XL gain from a longer cache at test?", 9, runs, QUALITY
    )
    trime = _long("novels-trime-0", "--method trime", 0)
    runs = [
        Run(
            f"scores in {precision}",
            [*trime, _read("novels-trime-0", WINDOW, f"--precision {precision}")],
        )
        for precision in ("bf16", "fp32")
    ]
    yield Step("scores-in-bf16", "Do memory scores in bf16 cost perplexity?", 9, runs, READ)
    for percent in (0, 50, 75):
        yield spalm_read_often(percent)
    yield trime_ext_from_plain()
    yield memorizing_gates()


def spalm_read_often(percent: int) -> Step:
    """Ten passes over a text, with neighbours hidden at so many positions, at three rates of
    dropout.
    """
    runs = []
    for dropout in ("0.1", "0.2", "0.3"):
        row = f"novels-often-{percent}-{dropout}"
        hidden = f"--set memory.neighbor_dropout={percent / 100} --set model.dropout={dropout}"
        train = f"memlm train neighbors/novels --method spalm {XL} --epochs {{epochs}} {hidden} --name {row} --json"
        runs.append(Run(row, [*NEIGHBORS, train, EVALUATE.format_map(Only(row=row))], ENCODER))
    asks = f"Does SPALM gain on a text read ten times, with {percent} of 100 positions without neighbours?"
    return Step(f"spalm-often-{percent}", asks, 9, runs, QUALITY)


def trime_ext_from_plain() -> Step:
    """More updates than one step has time for: what was begun resumes when the step is run again."""
    how = (
        f"--steps {{many_updates}} --init-from model/novels-plain-0 {SEGMENTS} --device {{device}}"
    )
    made = [*_long("novels-plain-0", "", 0), *_external("novels-ext", how)]
    asks = "Is trime-ext worth it after thousands of updates from a plain model?"
    return Step("trime-ext-from-plain", asks, 9, [Run("novels-ext", made)], EXTERNAL)


def memorizing_gates() -> Step:
    """Of its own, for each training takes three minutes."""
    runs = []
    for row, how in {"code-gate-5": "gate_bias=5", "code-gate-fast": "gate_lr=5e-3"}.items():
        model = f"{LAYERS['memorizing-few']} --set model.attention.{how} --set model.ffn_width={{ffn_width}}"
        train = f"memlm train tokens/code {model} {SHAPE} --steps {{steps}} --seed 0 --name {row} --json"
        runs.append(
            Run(row, [tokens("code"), train, EVALUATE.format_map(Only(row=row))], minutes=(3,))
        )
    asks = "Does Memorizing gain where gates begin at memory, or learn ten times as fast?"
    return Step("memorizing-gates", asks, 9, runs, QUALITY)


# The order

RIGHT = "correctness"
MACHINE = "the machine"
TRAINING = "training, compiled or not"
TRIME = "TRIME's step and kernels"
SEARCH = "search, beside FAISS"
MANY = "103 million neighbours"
INSIDE = "memory inside layers"
AT_SIZE = "TRIME and SPALM"
LEARNED = "distilled memory"
OPEN = "open questions"
ORDER: Sequence[tuple[str, Callable[[], Iterator[Step]]]] = (
    (RIGHT, kernel_tests),
    (TRIME, trime_step),
    (TRAINING, training_loop),
    (SEARCH, search),
    (MANY, many_keys),
    (RIGHT, same_figures),
    (TRIME, kernels),
    (MACHINE, machine),
    (TRAINING, compiled_training),
    (SEARCH, search_on_the_host),
    (RIGHT, suite),
    *((INSIDE, partial(layers, text, FIRST)) for text in TEXTS),
    (INSIDE, continued),
    *((INSIDE, partial(names, text)) for text in ("novels", "code")),
    *(
        (AT_SIZE, partial(made, seed))
        for seed in range(3)
        for made in (trime_at_size, spalm_at_size)
    ),
    *((LEARNED, partial(distilled_at_size, seed)) for seed in range(3)),
    (OPEN, open_questions),
    *((INSIDE, partial(exact, text)) for text in TEXTS),
    (SEARCH, search_more),
    *(
        (INSIDE, partial(layers, text, [name for name in LAYERS if name not in FIRST]))
        for text in TEXTS
    ),
)
"""Areas, and their steps: a wrong kernel makes all else worthless; speed takes minutes, what memory
gains hours.
"""
