"""Layers with memories, from the command line: trained, evaluated, shown; and what is said of bad
settings.
"""

import json
from pathlib import Path

import pytest

from stages.models import NAMED
from tests.builders.layer_options import ENTRIES, KEYS, NGRAMS, SIGNAL, chosen
from tests.cli.conftest import Memlm

SMALL = (
    "--steps",
    4,
    "--segment-length",
    16,
    "--batch-tokens",
    32,
    "--set",
    "model.width=8",
    "--set",
    "model.heads=2",
)
FIXED = ("--memory", "external:k=4,temperature=1,lambda=0.2")
"""A memory with no weight that is tuned."""

SLOTS = {"name": "compressive", "long_length": 6}


@pytest.fixture(autouse=True)
def one_store(
    memlm: Memlm, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tests have a store in common: a model that several of them need is trained once."""
    monkeypatch.setenv("MEMLM_STORE", str(tmp_path_factory.getbasetemp() / "layers"))


@pytest.fixture
def tokens(memlm: Memlm, text: Path) -> str:
    return memlm("tokenize", "--train", text, "--valid", text, "--test", text).reference


@pytest.mark.parametrize("backbone", ["transformer", "transformer-xl"])
def test_product_keys_and_hashed_ngrams_through_the_pipeline(
    memlm: Memlm, tokens: str, tmp_path: Path, backbone: str
) -> None:
    both = [*chosen("feed_forward", KEYS), *chosen("lookup", NGRAMS)]
    model = memlm("train", tokens, "--backbone", backbone, *both, *SMALL).reference
    index = memlm("build-index", memlm("build-datastore", model).reference).reference
    report = memlm("evaluate", index, *FIXED, "--exclude", "self", "--save-token-scores", "--json")
    assert report.code == 0, report.err
    made = json.loads(report.out)
    (keys,), (ngrams,) = (
        made["metrics"][name]["blocks"] for name in ("product_keys", "hashed_ngrams")
    )
    assert (keys["block"], keys["slots"]) == (1, 16)
    assert (ngrams["block"], 0 < ngrams["gate"] < 1) == (1, True)
    page = memlm("report", made["reference"], "--output", tmp_path / "page.html")
    assert page.code == 0, page.err
    html = (tmp_path / "page.html").read_text("utf-8")
    assert 'id="product-keys-usage"' in html and 'id="hashed-ngrams-gates"' in html
    assert "model.feed_forward.sub_keys=4" in html
    seen = memlm("inspect", index, "--position", 40, "--length", 5, "--json")
    assert seen.code == 0, seen.err
    for token in json.loads(seen.out)["tokens"]:
        assert 0.5 <= token["slot_weight"] <= 1 and 0 < token["ngram_gate"] < 1
    written = memlm("generate", index, "--prompt", "the", "--max-tokens", 20)
    assert written.code == 0, written.err


PLUS = {"name": "memory-plus", "sub_keys": 4, "neighbors": 2}

ROWS = ("--set", "model.memory_tokens=3", "--set", "model.memory_rows=controller")
OTHERS = {
    "memory-plus": ("--backbone", "transformer-xl", *chosen("feed_forward", PLUS)),
    "memformer": ("--backbone", "memformer", "--set", "model.slots=3"),
    "sru++": ("--backbone", "sru++"),
    "memory-tokens": ("--backbone", "memory-transformer", *ROWS),
}
PROBED = {
    "memory-plus": ("product_keys", "product-keys-usage"),
    "memformer": ("memformer", "memformer-"),
    "sru++": ("sru_plus_plus", "sru-plus-plus-"),
    "memory-tokens": ("memory_tokens", "memory-tokens-"),
}
"""Figures of a report, and how the name of a chart begins."""


@pytest.mark.parametrize("layer", OTHERS)
def test_others_through_the_pipeline(memlm: Memlm, tokens: str, tmp_path: Path, layer: str) -> None:
    own = SMALL if layer != "sru++" else SMALL[:-2]  # whose attention has one head
    model = memlm("train", tokens, *OTHERS[layer], *own).reference
    index = memlm("build-index", memlm("build-datastore", model).reference).reference
    memories = ("--memory", "long:size=9,theta=0.3,lambda=0.3", *FIXED)
    ended = [
        memlm("evaluate", index, *memories, "--exclude", "self", "--reset", reset, "--json")
        for reset in ("none", "document")
    ]
    assert [one.code for one in ended] == [0, 0], ended[0].err
    whole, alone = (json.loads(one.out) for one in ended)
    rows = {row["row"] for row in whole["metrics"]["rows"]}
    assert rows == {"plain", "neural-cache", "knn-lm", "neural-cache then knn-lm"}
    assert whole["metrics"]["rows"][0]["nll"] == pytest.approx(
        alone["metrics"]["rows"][0]["nll"]
    )  # one document
    page = memlm("report", whole["reference"], "--output", tmp_path / "page.html")
    assert page.code == 0, page.err
    figures, chart = PROBED[layer]
    assert whole["metrics"][figures]
    assert f'id="{chart}' in (tmp_path / "page.html").read_text("utf-8")
    seen = memlm("inspect", index, "--position", 40, "--length", 5, "--json")
    assert len(json.loads(seen.out)["tokens"]) == 5
    written = memlm("generate", index, "--prompt", "the", "--max-tokens", 8)
    assert written.code == 0, written.err


def test_a_table_larger_than_memory_is_refused_before_training(memlm: Memlm, tokens: str) -> None:
    table = chosen("lookup", NGRAMS | {"slots": 2 * 10**9})
    ended = memlm("train", tokens, "--backbone", "transformer", *table, *SMALL)
    assert ended.code == 5
    assert "model.lookup" in ended.err


def test_memsizer_through_the_pipeline(memlm: Memlm, tokens: str) -> None:
    sizer = chosen("attention", {"name": "memsizer", "slots": 3, "chunk": 5})
    model = memlm("train", tokens, "--backbone", "transformer", *sizer, *SMALL).reference
    index = memlm("build-index", memlm("build-datastore", model).reference).reference
    report = memlm("evaluate", index, *FIXED, "--exclude", "self", "--stride", 4, "--json")
    assert report.code == 0, report.err
    assert [
        0 < one["read"] <= 3 for one in json.loads(report.out)["metrics"]["memsizer"]["blocks"]
    ] == [True, True]
    seen = memlm("inspect", index, "--position", 3, "--length", 5, "--json")
    assert all(0 < token["slots_read"] <= 3.001 for token in json.loads(seen.out)["tokens"])
    written = memlm("generate", index, "--prompt", "the", "--max-tokens", 20)
    assert written.code == 0, written.err


def test_compressive_attention_through_the_pipeline(
    memlm: Memlm, tokens: str, tmp_path: Path
) -> None:
    own = [*chosen("attention", SLOTS), *chosen("feed_forward", KEYS), *SMALL]
    model = memlm("train", tokens, "--backbone", "transformer-xl", *own).reference
    index = memlm("build-index", memlm("build-datastore", model).reference).reference
    made = [
        json.loads(memlm("evaluate", index, *FIXED, "--exclude", "self", "--json", *more).out)
        for more in ((), ("--long-length", 6), ("--long-length", 9, "--mem-length", 8))
    ]
    assert made[0]["reference"] == made[1]["reference"] != made[2]["reference"]
    for figures in made[0]["metrics"]["compressive"]["blocks"]:
        assert figures["slots"] + figures["cached"] + figures["segment"] == pytest.approx(1)
    page = memlm("report", made[0]["reference"], "--output", tmp_path / "page.html")
    assert 'id="compressive-attention"' in (tmp_path / "page.html").read_text("utf-8")
    assert page.code == 0, page.err
    written = memlm("generate", index, "--prompt", "the", "--max-tokens", 20, "--long-length", 3)
    assert written.code == 0, written.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--context", 15), "--context at test, is 15, no multiple of 4: 16 is"),
        (("--mem-length", 9), "--mem-length is 9, no multiple of 4: 8 is"),
    ],
)
def test_lengths_that_its_layers_cannot_read_are_refused(
    memlm: Memlm, tokens: str, options: tuple[str, int], words: str
) -> None:
    model = memlm(
        "train", tokens, "--backbone", "transformer-xl", *chosen("attention", SLOTS), *SMALL
    ).reference
    for command in ("evaluate", "build-datastore", "generate"):
        ended = memlm(command, model, *options)
        assert (command, ended.code) == (command, 2)
        assert words in " ".join(ended.err.split())


def test_a_model_without_such_layers_has_no_long_length(memlm: Memlm, tokens: str) -> None:
    model = memlm("train", tokens, "--backbone", "transformer-xl", *SMALL).reference
    ended = memlm("evaluate", model, "--long-length", 9)
    assert (ended.code, "--long-length" in ended.err) == (2, True)


def test_memorizing_attention_through_the_pipeline(
    memlm: Memlm, tokens: str, tmp_path: Path
) -> None:
    own = [*chosen("attention", ENTRIES), *SMALL]
    model = memlm("train", tokens, "--backbone", "transformer-xl", *own).reference
    index = memlm("build-index", memlm("build-datastore", model).reference).reference
    made = [
        json.loads(memlm("evaluate", index, *FIXED, "--exclude", "self", "--json", *more).out)
        for more in ((), ("--long-length", 64), ("--reset", "document"))
    ]
    blocks = [one["metrics"]["memorizing"]["blocks"] for one in made]
    assert [[one["block"] for one in its] for its in blocks] == [[2]] * 3
    assert (
        max(age for age, _ in blocks[0][0]["by_age"])
        <= 32
        < max(age for age, _ in blocks[1][0]["by_age"])
    )
    page = memlm("report", made[0]["reference"], "--output", tmp_path / "page.html")
    assert page.code == 0, page.err
    for title in ("How far back memory is read", "How well the best entry fits"):
        assert title in (tmp_path / "page.html").read_text("utf-8")
    seen = memlm("inspect", index, "--position", 40, "--length", 5, "--json")
    assert seen.code == 0, seen.err
    assert all(0 < token["memory_weight"] <= 1 for token in json.loads(seen.out)["tokens"])
    written = memlm("generate", index, "--prompt", "the", "--max-tokens", 20)
    assert written.code == 0, written.err


def test_what_streams_carry_is_no_more_than_they_have_positions(memlm: Memlm, tokens: str) -> None:
    """A length far beyond the text means all of it: no room is asked for that it cannot take."""
    own = [*chosen("attention", ENTRIES), *SMALL]
    model = memlm("train", tokens, "--backbone", "transformer-xl", *own).reference
    far = ("--long-length", 10**9, "--mem-length", 10**9)
    needed = json.loads(memlm("plan", "evaluate", model, *far, "--json").out)["stages"][0][
        "memory"
    ]["cpu"]
    assert needed < 10**9
    for command in ("evaluate", "build-datastore"):
        ended = memlm(command, model, *far)
        assert ended.code == 0, ended.err


def test_checkpoints_are_planned_with_what_streams_carry(memlm: Memlm, tokens: str) -> None:
    def scratch(length: int) -> int:
        own = ("--backbone", "memorizing-transformer", *SMALL, "--long-length", length)
        stages = json.loads(memlm("plan", "train", tokens, *own, "--json").out)["stages"]
        return int(stages[0]["scratch"])

    checkpoints, rows, layers, keys_and_values, width, float32 = 2, 2, 1, 2, 8, 4
    of_an_entry = checkpoints * rows * layers * keys_and_values * width * float32
    assert scratch(1000) - scratch(0) == 1000 * of_an_entry


def test_continuous_memory_through_the_pipeline(memlm: Memlm, tokens: str, tmp_path: Path) -> None:
    own = [*chosen("attention", SIGNAL), *SMALL]
    model = memlm("train", tokens, "--backbone", "transformer-xl", *own).reference
    index = memlm("build-index", memlm("build-datastore", model).reference).reference
    made = [
        json.loads(memlm("evaluate", index, *FIXED, "--exclude", "self", "--json", *more).out)
        for more in ((), ("--context", 8, "--mem-length", 8), ("--mem-length", 0))
    ]
    assert len({one["reference"] for one in made}) == 3
    ((one,), (more,), (none,)) = (each["metrics"]["infinity"]["blocks"] for each in made)
    assert (one["block"], sum(one["by_place"])) == (2, pytest.approx(1))
    assert 0 < one["seen"] < min(more["seen"], none["seen"])
    page = memlm("report", made[0]["reference"], "--output", tmp_path / "page.html")
    assert page.code == 0, page.err
    assert 'id="infinity-attention"' in (tmp_path / "page.html").read_text("utf-8")
    seen = memlm("inspect", index, "--position", 40, "--length", 5, "--json")
    assert seen.code == 0, seen.err
    assert all(0 < token["signal_place"] < 1 for token in json.loads(seen.out)["tokens"])
    written = memlm("generate", index, "--prompt", "the", "--max-tokens", 20)
    assert written.code == 0, written.err


def test_what_training_settled_of_a_continuous_memory_is_said(memlm: Memlm, tokens: str) -> None:
    own = [*chosen("attention", SIGNAL), *SMALL]
    model = memlm("train", tokens, "--backbone", "transformer-xl", *own).reference
    for command in ("evaluate", "build-datastore", "generate"):
        for options, words in (
            (
                ("--long-length", 16),
                "(model.attention), so at test only --context and --mem-length may change",
            ),
            (
                ("--mem-length", 20),
                "a multiple of the segment length (--context at test), 16; 20 is none: 16 is",
            ),
        ):
            ended = memlm(command, model, *options)
            assert (command, ended.code) == (command, 2)
            assert words in " ".join(ended.err.split())
    began = memlm(
        "train",
        tokens,
        "--init-from",
        model,
        *chosen("attention", {"name": "infinity", "basis": 16}),
    )
    words = "takes over how that model is made: leave model.attention out. What may be another: --segment-length, "
    assert (began.code, words + "--mem-length." in " ".join(began.err.split())) == (2, True)


@pytest.mark.parametrize(("name", "attention"), NAMED.items())
def test_a_named_model_is_the_same_model_as_one_that_is_spelled_out(
    memlm: Memlm, tokens: str, name: str, attention: str
) -> None:
    named = memlm("train", tokens, "--backbone", name, *SMALL)
    spelled = memlm(
        "train",
        tokens,
        "--backbone",
        "transformer-xl",
        *chosen("attention", {"name": attention}),
        *SMALL,
    )
    assert (named.code, spelled.reference) == (0, named.reference)
    lengths = ("--steps", 1, "--segment-length", 16, "--batch-tokens", 32)
    began = memlm("train", tokens, "--init-from", named.reference, "--backbone", name, *lengths)
    assert began.code == 0, began.err
    plain = memlm("train", tokens, "--backbone", "transformer-xl", *SMALL).reference
    other = memlm("train", tokens, "--init-from", plain, "--backbone", name, *lengths)
    assert other.code == 2
    words = (
        f"has attention 'relative': leave out the backbone or preset with attention {attention!r}"
    )
    assert words in " ".join(other.err.split())


def test_a_wrong_block_is_one_complaint_and_attention_of_another_backbone_is_known(
    memlm: Memlm,
) -> None:
    wrong = memlm(
        "train",
        "tokens/none",
        "--backbone",
        "memorizing-transformer",
        "--set",
        "model.attention.layers=[0]",
    )
    assert (wrong.err.count("layers.0"), wrong.err.count(";")) == (1, 0)
    other = memlm(
        "train",
        "tokens/none",
        "--backbone",
        "transformer",
        "--set",
        "model.attention.name=memorizing",
    )
    assert all(
        word in other.err for word in ("memorizing", "memsizer", "softmax", "transformer-xl")
    )
    assert (wrong.code, other.code) == (2, 2)


@pytest.mark.parametrize("layer", [ENTRIES, SLOTS])
def test_training_goes_on_with_another_length_of_what_layers_remember(
    memlm: Memlm, tokens: str, layer: dict[str, object]
) -> None:
    """As the Memorizing Transformer's authors do: a longer memory is learned by a model that has a
    shorter one.
    """
    first = memlm(
        "train", tokens, "--backbone", "transformer-xl", *chosen("attention", layer), *SMALL
    ).reference
    short = ("--init-from", first, "--steps", 2, "--segment-length", 16, "--batch-tokens", 32)
    same, longer, none = (
        json.loads(
            memlm(
                "artifacts", "show", memlm("train", tokens, *short, *more).reference, "--json"
            ).out
        )
        for more in ((), ("--long-length", 40), ("--long-length", 0))
    )
    attention = [one["config"]["model"]["attention"] for one in (same, longer, none)]
    assert [one["long_length"] for one in attention] == [layer["long_length"], 40, 0]
    assert [one | {"long_length": 0} for one in attention] == [attention[2]] * 3


def test_a_length_is_that_of_the_layers_that_a_preset_or_backbone_names(
    memlm: Memlm, tokens: str
) -> None:
    own = ("--backbone", "memorizing-transformer", *SMALL)
    by_option = memlm("train", tokens, *own, "--long-length", 24)
    assert by_option.code == 0, by_option.err
    assert (
        by_option.reference
        == memlm("train", tokens, *own, "--set", "model.attention.long_length=24").reference
    )
    plain = memlm("train", tokens, "--backbone", "transformer-xl", *SMALL).reference
    named = [
        ("--backbone", backbone)
        for backbone in ("transformer-xl", "infinity-former", "transformer")
    ]
    for arguments in (*named, ("--init-from", plain), ()):
        ended = memlm("train", tokens, *arguments, "--long-length", 24)
        assert (ended.code, "--long-length" in ended.err) == (2, True), arguments
