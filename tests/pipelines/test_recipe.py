"""Recipes are checked whole before anything runs."""

from pathlib import Path
from typing import Any, cast

import pytest

from pipelines.recipe import Recipe, find_recipe, load_recipe, read_recipe, shipped_recipes
from stages.errors import UsageError
from stages.methods.config import Batches
from stages.methods.settings import SpalmConfig
from stages.training.config import TrainConfig

Files = dict[str, list[str]]


def test_the_files_of_the_user_and_the_preset_go_in(recipe_file: Path, files: Files) -> None:
    recipe = load_recipe(recipe_file, files, {"model": {"optimizer": {"lr": 0.5}}})
    assert recipe.stages["tokens"].references == {"train": tuple(files["train"])}
    config = recipe.config("model").model_dump()
    assert config["steps"] == 2
    assert config["optimizer"]["lr"] == 0.5
    assert config["schedule"]["warmup"] == 100


def test_precision_reaches_the_stages_that_compute(recipe_file: Path, files: Files) -> None:
    recipe = load_recipe(recipe_file, files, {}).with_precision("bf16")
    assert recipe.config("model").model_dump()["precision"] == "bf16"
    assert recipe.config("datastore").model_dump()["precision"] == "bf16"
    assert "precision" not in recipe.stages["tokens"].settings


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_are_valid(name: str) -> None:
    path = find_recipe(name)
    try:
        load_recipe(path, {}, {})
    except UsageError as error:
        asked = [name for name in read_recipe(path).inputs if name in SPLITS]
        assert " ".join(f"--{name} FILE" for name in asked) in str(error) and "train" in asked
        texts = {**SPLITS, "kept": ["b.txt"]}
        load_recipe(
            path, {name: texts.get(name, "model.gguf") for name in read_recipe(path).inputs}, {}
        )


SPLITS = {split: ["a.txt"] for split in ("train", "valid", "test")}
TABLE, LONG, SPALM_TABLE = "trime-wikitext2-table", "trime-wikitext2-long", "spalm-wikitext2-table"
TRIME = [
    name for name in shipped_recipes() if name.startswith("trime") and name not in (TABLE, LONG)
]
SPALM = [name for name in shipped_recipes() if name.startswith("spalm") and name != SPALM_TABLE]
EXCLUDED = {"wikitext": "document", "enwik8": "window:10000"}
"""Rows that a token may not find: of its own article, or near it where the bytes of all articles
are one document.
"""


def settings_of(recipe: Recipe, command: str) -> dict[str, dict[str, Any]]:
    """Of every stage with this command."""
    found = [name for name, stage in recipe.stages.items() if stage.command == command]
    return {name: recipe.config(name).model_dump() for name in found}


def test_the_recipes_of_the_papers_are_shipped() -> None:
    caches = {f"neural-cache-{corpus}" for corpus in ("ptb", "wikitext2", "text8")}
    trime = {f"trime-wikitext103-{size}" for size in ("247m", "150m", "7m")} | {"trime-enwik8"}
    spalm = {"spalm-wikitext103", "spalm-enwik8", SPALM_TABLE}
    small = {
        f"{name}-small"
        for name in (
            *caches,
            *("trime-wikitext2", "trime-enwik8", "spalm-wikitext2", "spalm-enwik8", "rivals"),
        )
    }
    others = {
        TABLE,
        LONG,
        "knn-lm-wikitext103",
        "knn-lm-wikitext2",
        "knn-lm-pretrained",
        "fine-tuning",
        "quickstart",
        "rivals",
    }
    others |= {"lifelong-text-small"}
    assert set(shipped_recipes()) == caches | trime | spalm | small | others


@pytest.mark.parametrize(
    "name", [name for name in shipped_recipes() if name.startswith("neural-cache")]
)
def test_caches_are_read_by_both_readers_on_an_lstm_trained_without_them(name: str) -> None:
    recipe = load_recipe(find_recipe(name), SPLITS, {})
    read = {stage: recipe.config(stage).model_dump()["memory"] for stage in ("joint", "report")}
    assert read == {
        "joint": ("long:reader=joint,theta=tune,alpha=tune,size=tune",),
        "report": ("long:theta=tune,lambda=tune,size=tune",),
    }
    assert recipe.config("model").model_dump()["model"]["backbone"] == "lstm"


GROUPED = {
    "trime-wikitext103-247m": (4, 1),
    "trime-wikitext103-150m": (60, None),
    "trime-wikitext103-7m": (8, 1),
    "trime-enwik8": (24, None),
    "trime-wikitext2-small": (None, 1),
}
"""Consecutive segments of TRIME-long, and groups of a forward batch of TRIME-ext, of the papers'
sizes those of its Table 9; others leave them to the defaults."""


@pytest.mark.parametrize("name", TRIME)
def test_models_that_are_compared_differ_in_their_method_alone(name: str) -> None:
    recipe = load_recipe(find_recipe(name), SPLITS, {})
    trained = settings_of(recipe, "train")
    methods = [config.pop("method") for config in trained.values()]
    memories = [config.pop("memory") for config in trained.values()]
    external = ["trime-ext"] if "trime_ext" in trained else []
    assert methods == ["lm", "trime", "trime-long", *external]
    runs, groups = GROUPED.get(name, (None, None))
    assert memories[2]["consecutive"] == runs
    assert [recipe.config("trime_ext").memory.groups for _ in external] == [
        groups for _ in external
    ]
    assert all(config == trained["plain"] for config in trained.values())


@pytest.mark.parametrize("name", TRIME)
def test_trime_is_read_as_its_tables_are(name: str) -> None:
    """Table 9: the length of windows, how far they advance, and the longest of long memory."""
    tables = {
        "trime-wikitext103-247m": (3072, 512, "12288"),
        "trime-wikitext103-150m": (150, 64, "15000"),
        "trime-wikitext103-7m": (3072, 512, "12288"),
        "trime-enwik8": (512, 80, "24576"),
    }
    context, stride, longest = tables.get(name, (None, None, ""))
    recipe = load_recipe(find_recipe(name), SPLITS, {})
    reports = settings_of(recipe, "evaluate")
    assert {(report["context"], report["stride"]) for report in reports.values()} == {
        (context, stride)
    }
    assert reports["trime_report"]["memory"][0].startswith("local:reader=joint")
    long = reports["trime_long_report" if "trime_ext" in recipe.stages else "report"]
    assert f"/{longest}" in long["memory"][0]
    assert list(recipe.stages)[-1] == "report"


@pytest.mark.parametrize("name", [name for name in TRIME if name.endswith(("247m", "7m"))])
def test_trime_ext_learns_packed_batches_and_is_searched_by_inner_products(name: str) -> None:
    recipe = load_recipe(find_recipe(name), SPLITS, {})
    (packed,) = settings_of(recipe, "pack-batches").values()
    assert packed["segment_length"] == recipe.config("trime_ext").model_dump()["segment_length"]
    assert [
        recipe.stages[stage].source for stage in ("trime_ext", "datastore", "index", "report")
    ] == [
        "batches",
        "trime_ext",
        "datastore",
        "index",
    ]
    assert recipe.config("index").model_dump()["metric"] == "ip"
    first, second = recipe.config("report").model_dump()["memory"]
    assert first.startswith("local+long+external:reader=joint")
    assert second.startswith("external:similarity=dot")


def test_small_trime_ext_learns_of_other_articles_and_weighs_them_apart() -> None:
    recipe = load_recipe(find_recipe("trime-wikitext2-small"), SPLITS, {})
    assert recipe.config("batches").model_dump()["exclude"] == "document"
    sources = {
        stage: recipe.stages[stage].source
        for stage in ("trime_ext", "datastore", "index", "neighbors", "report")
    }
    assert list(sources.values()) == ["batches", *list(sources)[:-1]]
    assert recipe.config("index").model_dump()["metric"] == "ip"
    assert [
        reading.split(":")[0] for reading in recipe.config("report").model_dump()["memory"]
    ] == [
        "local+long",
        "external",
    ]


def test_models_of_long_segments_differ_in_their_method_alone() -> None:
    recipe = load_recipe(find_recipe(LONG), SPLITS, {})
    trained = settings_of(recipe, "train")
    methods = [config.pop("method") for config in trained.values()]
    assert [config.pop("memory") is None for config in trained.values()] == [True, False, False]
    assert methods == ["lm", "trime", "trime-ext"]
    assert trained["plain"] == trained["trime"] == trained["ext"]
    assert recipe.config("ext").memory.groups == 1
    lengths = (
        recipe.config("batches").model_dump()["segment_length"],
        trained["ext"]["segment_length"],
    )
    assert lengths == (3072, 3072)
    metrics = {
        stage: recipe.config(stage).model_dump()["metric"]
        for stage in settings_of(recipe, "build-index")
    }
    assert metrics == {"plain_index": "l2", "trime_index": "ip", "ext_index": "ip"}


def test_models_of_the_table_differ_in_their_method_alone() -> None:
    recipe = load_recipe(find_recipe(TABLE), SPLITS, {})
    trained = settings_of(recipe, "train")
    methods = {name: config.pop("method") for name, config in trained.items()}
    memories = {name: config.pop("memory") for name, config in trained.items()}
    begun = [name for name in trained if "init_from" not in recipe.stages[name].references]
    went_on = [name for name in trained if name not in begun]
    assert [methods[name] for name in begun] == ["lm", "trime", "trime-ext"]
    assert trained["plain"] == trained["trime"] == trained["ext"]
    assert [methods[name] for name in went_on] == [
        "lm",
        "trime",
        "trime-long",
        "trime-ext",
        "trime-ext",
        "trime-ext",
    ]
    assert memories["plain_on_batches"] == memories["trime_ext"] | {
        "warmup": 1
    }  # the plain loss on its batches
    assert all(trained[name] == trained["plain_on"] for name in went_on)
    assert {recipe.stages[name].references["init_from"] for name in went_on} == {"plain"}
    assert (memories["trime_long"]["consecutive"], memories["trime_ext"]["groups"]) == (3, 3)
    assert recipe.stages["trime_ext_packed"].source == "packed"
    assert {recipe.stages[name].source for name in ("ext", "trime_ext", "plain_on_batches")} == {
        "batches"
    }
    assert recipe.config("ext").memory.groups == 1
    assert recipe.config("batches").model_dump()["exclude"] == "document"


def test_models_of_the_table_are_read_beside_caches_of_the_same_reach() -> None:
    recipe = load_recipe(find_recipe(TABLE), SPLITS, {})
    readings = {
        name: (recipe.stages[name].source, *(memory.split(":")[0] for memory in config["memory"]))
        for name, config in settings_of(recipe, "evaluate").items()
    }
    assert readings == {
        "window_cache_report": ("plain", "local"),
        "cache_report": ("plain", "long"),
        "cache_and_knn_report": ("plain_neighbors", "long", "external"),
        "trime_report": ("trime", "local"),
        "trime_and_knn_report": ("trime_neighbors", "local+long", "external"),
        "trime_with_long_report": ("trime", "local+long"),
        "ext_one_softmax_report": ("ext_neighbors", "local+long+external", "external"),
        "ext_report": ("ext_neighbors", "local+long", "external"),
        "plain_on_window_cache_report": ("plain_on", "local"),
        "plain_on_cache_and_knn_report": ("plain_on_neighbors", "long", "external"),
        "trime_on_report": ("trime_on", "local"),
        "trime_on_with_long_report": ("trime_on", "local+long"),
        "trime_long_report": ("trime_long", "local+long"),
        "plain_on_batches_cache_report": ("plain_on_batches", "long"),
        "packed_one_softmax_report": ("packed_neighbors", "local+long+external", "external"),
        "packed_report": ("packed_neighbors", "local+long", "external"),
        "trime_ext_report": ("neighbors", "local+long+external", "external"),
        "report": ("neighbors", "local+long", "external"),
    }


@pytest.mark.parametrize("name", SPALM)
def test_spalm_reads_neighbours_in_final_hidden_states(name: str) -> None:
    """Of a vanilla Transformer in the papers' sizes, of the Transformer-XL itself in the small
    ones.
    """
    recipe = load_recipe(find_recipe(name), SPLITS, {})
    encoder = "xl" if name.endswith("-small") else "encoder"
    chain = [encoder, "datastore", "index", "neighbors", "spalm", "report"]
    assert [recipe.stages[stage].source for stage in chain] == ["tokens", *chain[:-1]]
    datastore, index, neighbors = (recipe.config(stage).model_dump() for stage in chain[1:4])
    assert (datastore["key"], index["metric"]) == ("hidden", "ip")
    assert [neighbors["exclude"]] == [exclude for text, exclude in EXCLUDED.items() if text in name]
    assert neighbors["k"] == (2 if "enwik8" in name else 4)
    backbones = {
        stage: config["model"]["backbone"] for stage, config in settings_of(recipe, "train").items()
    }
    vanilla = {} if encoder == "xl" else {"encoder": "transformer"}
    assert backbones == {"xl": "transformer-xl", "spalm": "transformer-xl"} | vanilla


@pytest.mark.parametrize("name", SPALM)
def test_spalm_differs_from_its_transformer_xl_in_the_neighbours_alone(name: str) -> None:
    recipe = load_recipe(find_recipe(name), SPLITS, {})
    trained = settings_of(recipe, "train")
    methods = {stage: config.pop("method") for stage, config in trained.items()}
    assert methods == {stage: "spalm" if stage == "spalm" else "lm" for stage in trained}
    memory = {stage: config.pop("memory") for stage, config in trained.items()}
    assert memory["spalm"]["k"] == recipe.config("neighbors").model_dump()["k"]
    assert trained["spalm"] == trained["xl"]
    shared = ("steps", "segment_length", "batch_tokens", "accumulate", "optimizer", "schedule")
    assert all(
        config[setting] == trained["xl"][setting]
        for config in trained.values()
        for setting in shared
    )


def test_only_recipes_at_the_papers_size_train_spalm_as_the_paper_with_all_neighbours() -> None:
    hidden = {}
    for name in SPALM:
        config = cast(TrainConfig, load_recipe(find_recipe(name), SPLITS, {}).config("spalm"))
        settings = config.method_settings.complete(config.model, Batches(config.batch_segments))
        hidden[name] = cast(SpalmConfig, settings).neighbor_dropout
    papers = {"spalm-wikitext103": 0.0, "spalm-enwik8": 0.0}
    assert hidden == {name: papers.get(name, 0.5) for name in SPALM}


@pytest.mark.parametrize("name", SPALM)
def test_spalm_and_its_transformer_xl_are_read_alike(name: str) -> None:
    """Section 4.2: λ from a list; Tables 2 and 4: the short-term memory."""
    recipe = load_recipe(find_recipe(name), SPLITS, {})
    reports = settings_of(recipe, "evaluate")
    plain = reports.pop("encoder_report", None)
    assert (plain is None) == name.endswith("-small")
    assert plain is None or (plain["memory"], recipe.stages["encoder_report"].source) == (
        None,
        "encoder",
    )
    assert {report["memory"] for report in reports.values()} == {
        ("external:temperature=tune,lambda=0.05/0.1/0.2/0.3/0.4",)
    }
    lengths = {"spalm-wikitext103": {512, 3072}, "spalm-enwik8": {1536, 4096}}.get(name, {None})
    for source in ("xl", "spalm"):
        of_it = [
            report for stage, report in reports.items() if recipe.stages[stage].source == source
        ]
        assert {report["mem_length"] for report in of_it} == lengths
    assert all(recipe.stages[stage].references == {"neighbors": "neighbors"} for stage in reports)
    assert list(recipe.stages)[-1] == "report"


def test_models_of_the_table_of_spalm_differ_in_seed_updates_or_gate_alone() -> None:
    recipe = load_recipe(find_recipe(SPALM_TABLE), SPLITS, {})
    trained = settings_of(recipe, "train")
    methods = {name: config.pop("method") for name, config in trained.items()}
    memories = [config.pop("memory") for config in trained.values()]
    assert methods == {
        "xl": "lm",
        "encoder": "lm",
        "longer": "lm",
        "raw": "spalm",
        "whole": "spalm",
        "spalm": "spalm",
    }
    assert [memory and memory["k"] for memory in memories] == [None, None, None, 4, 4, 4]
    gated = [
        cast(TrainConfig, recipe.config(name)).method_settings for name in ("raw", "whole", "spalm")
    ]
    assert [cast(SpalmConfig, settings).neighbor_dropout for settings in gated] == [0.0, 0.0, None]
    assert trained["encoder"] == trained["xl"] | {"seed": 100}  # as good as the reader, and another
    assert trained["longer"] == trained["xl"] | {
        "steps": 2 * trained["xl"]["steps"]
    }  # the encoder's updates added
    assert trained["spalm"] == trained["whole"] == trained["xl"]
    trained["raw"]["model"]["gate_values"] = None
    values = {
        name: cast(TrainConfig, recipe.config(name)).model.gate_values for name in ("raw", "spalm")
    }
    assert (trained["raw"], values) == (trained["xl"], {"raw": "raw", "spalm": None})
    assert recipe.config("neighbors").model_dump()["exclude"] == "document"
    assert (recipe.stages["xl_report"].source, recipe.stages["report"].source) == ("xl", "spalm")
    assert recipe.config("xl_report") == recipe.config("report") == recipe.config("whole_report")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"train"\nfrom',
            '"trian"\nfrom',
            "Stage 'model': there is no command 'trian'; did you mean 'train'?",
        ),
        (
            'from = "tokens"',
            'form = "tokens"',
            "There is no setting 'stages.model.form'; did you mean 'stages.model.from'?",
        ),
        ('from = "tokens"', "", "Stage 'model' has no `from`"),
        (
            'from = "tokens"',
            'from = "datastore"',
            "Stage 'model' reads 'datastore', which is no stage above it",
        ),
        (
            'from = "tokens"',
            'from = ["tokens", "tokens"]',
            "Stage 'model': `from` names one artifact, not a list of 2",
        ),
        (
            'from = "tokens"',
            'from = "tokens"\nwith = { init_from = "tokens" }',
            "Stage 'model' reads 'tokens', which is of kind tokens; train reads model.",
        ),
        (
            'from = "tokens"',
            'from = "index/0123456789ab"',
            "Stage 'model' reads 'index/0123456789ab', which is of kind index; train reads tokens.",
        ),
        (
            "steps = 2",
            "setps = 2",
            "stage 'model': There is no setting 'setps'; did you mean 'steps'?",
        ),
        ("steps = 2", "steps = -2", "stage 'model': steps: input should be greater than 0"),
        ('"tiny"', '"tinny"', "There is no preset 'tinny'; did you mean 'tiny'?"),
        (
            'with = { train = "{train}"',
            'with = { train = "{train}", tokenizer = "model"',
            "Stage 'tokens' reads 'model', which is no stage above it; it is the first",
        ),
        (
            "with = { train",
            "with = { trian",
            "tokenize takes no reference 'trian'; did you mean 'train'?",
        ),
        (
            'index = "flat"',
            'indx = "flat"',
            "stage 'index': There is no setting 'indx'; did you mean 'index'?",
        ),
    ],
)
def test_mistakes_are_named(
    recipe_file: Path, files: Files, old: str, new: str, message: str
) -> None:
    text = recipe_file.read_text()
    assert old in text
    recipe_file.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_recipe(recipe_file, files, {})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "batch_tokens = 32",
            "batch-tokens = 'few'",
            "stage 'model': batch_tokens: input should be",
        ),
        (
            "batch_tokens = 32",
            "batch-tokens = 31",
            "batch_tokens 31 is not a multiple of segment_length 16",
        ),
        ("steps = 2", "log-evry = 2", "'log_evry'; did you mean 'log_every'"),
    ],
)
def test_mistakes_are_named_with_dashes_as_underscores(
    recipe_file: Path, files: Files, old: str, new: str, message: str
) -> None:
    recipe_file.write_text(recipe_file.read_text().replace(old, new))
    with pytest.raises(UsageError, match=message):
        load_recipe(recipe_file, files, {})


def test_files_that_are_missing_or_not_asked_for_are_named(recipe_file: Path, files: Files) -> None:
    with pytest.raises(UsageError, match="--train"):
        load_recipe(recipe_file, {}, {})
    with pytest.raises(UsageError, match="'test'"):
        load_recipe(recipe_file, {**files, "test": ["x"]}, {})


def test_settings_for_a_stage_that_is_not_there_are_refused(
    recipe_file: Path, files: Files
) -> None:
    with pytest.raises(UsageError, match="'modle'"):
        load_recipe(recipe_file, files, {"modle": {"steps": 3}})


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(UsageError, match="'quickstart'"):
        find_recipe("quikstart")


def test_a_stage_reads_those_above_it_alone() -> None:
    stages = {
        "tokens": {"command": "tokenize", "from": "model"},
        "model": {"command": "train", "from": "tokens"},
    }
    recipe = Recipe.model_validate({"stages": stages})
    assert {name: recipe.stages_read(name) for name in stages} == {
        "tokens": [],
        "model": ["tokens"],
    }
