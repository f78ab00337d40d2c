"""Models as tables: which backbone is meant, and what follows from tokens and segments."""

import pytest
from pydantic import BaseModel, ValidationError

from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.models import NAMED
from stages.models.backbones.stream_configs import LSTMConfig, TransformerXLConfig
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.config import ModelConfig, parse_model
from stages.training.config import TrainConfig
from stages.validation import validated


class Holder(BaseModel):
    model: ModelConfig


@pytest.mark.parametrize(
    ("table", "config"),
    [
        ({}, TransformerConfig()),
        ({"heads": 2}, TransformerConfig(heads=2)),
        ({"backbone": "transformer"}, TransformerConfig()),
        (
            {"backbone": "lstm", "layers": 2, "cutoffs": [5, 9]},
            LSTMConfig(layers=2, cutoffs=(5, 9)),
        ),
        ({"backbone": "transformer-xl", "mem_length": 3}, TransformerXLConfig(mem_length=3)),
    ],
)
def test_the_backbone_says_which_configuration_a_table_is(table, config):
    assert parse_model(table) == config
    assert parse_model(config.model_dump(mode="json")) == config
    assert Holder(model=config).model == config


@pytest.mark.parametrize(("name", "attention"), NAMED.items())
@pytest.mark.parametrize("settings", [{}, {"layers": 3, "attention": {"layers": [2]}}])
def test_a_named_model_is_the_backbone_and_attention_that_it_stands_for(name, attention, settings):
    meant = {
        **settings,
        "attention": {"name": attention, **settings.get("attention", {})},
        "backbone": "transformer-xl",
    }
    assert (
        parse_model({"backbone": name, **settings})
        == parse_model(meant)
        == parse_model(meant | {"backbone": name})
    )
    assert (
        Holder(model={"backbone": name, **settings}).model.model_dump(mode="json")["backbone"]
        == "transformer-xl"
    )


def test_a_named_model_with_other_attention_is_refused():
    words = "'infinity-former' is a transformer-xl with attention 'infinity': leave it or model.attention.name=relative out"
    with pytest.raises(UsageError, match=words):
        validated(
            Holder, {"model": {"backbone": "infinity-former", "attention": {"name": "relative"}}}
        )
    with pytest.raises(UsageError, match=r"'model.attention.basi'.*'model.attention.basis'"):
        validated(Holder, {"model": {"backbone": "infinity-former", "attention": {"basi": 8}}})


@pytest.mark.parametrize("place", ["lookup", "attention", "feed_forward"])
def test_blocks_of_a_layer_are_in_order_and_once_however_they_are_named(place):
    def layers(*blocks):
        names = {
            "lookup": "hashed-ngrams",
            "attention": "memorizing",
            "feed_forward": "product-keys",
        }
        chosen = {"name": names[place], "layers": blocks}
        return parse_model({"backbone": "transformer-xl", "layers": 3, place: chosen})

    assert layers(3, 1).model_dump(mode="json") == layers(1, 3, 3).model_dump(mode="json")
    assert layers(3, 1).blocks_with(place) == (1, 3)
    assert getattr(layers(1, 3), place).model_dump(mode="json")["layers"] == [1, 3]


@pytest.mark.parametrize("name", ["lsmt", 3, ["lstm"]])
def test_an_unknown_backbone_is_named(name):
    with pytest.raises(UsageError):
        parse_model({"backbone": name})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"hedas": 4}, r"'model\.hedas'.*'model\.heads'"),
        ({"backbone": "lstm", "heads": 4}, r"'model\.heads'.*lstm.*transformer"),
        ({"backbone": "lstm", "zzz": 4}, r"'model\.zzz'.*backbone, cutoffs,"),
        ({"backbone": "lstm", "layrs": 4}, r"'model\.layrs'.*'model\.layers'"),
        ({"backbone": "lstm", "width": -1}, r"^model\.width: .*-1"),
        ({"backbone": "lsmt"}, r"'lsmt'.*'lstm'"),
        (3, r"^model: "),
    ],
)
def test_what_is_wrong_is_said_without_the_tags_of_the_union(model, message):
    with pytest.raises(UsageError, match=message):
        validated(TrainConfig, {"model": model})


def test_sizes_that_follow_from_tokens_and_segments():
    assert TransformerConfig().sized(50, 8) == TransformerConfig(vocab_size=50, max_positions=8)
    assert TransformerConfig(max_positions=9).sized(50, 8).max_positions == 9
    assert TransformerConfig(positions="sinusoidal").sized(50, 8).max_positions is None
    assert LSTMConfig().sized(50, 8) == LSTMConfig(vocab_size=50)
    with pytest.raises(UsageError, match=r"max_positions.*\b4\b.*\b8\b"):
        TransformerConfig(max_positions=4).sized(50, 8)


def test_what_a_backbone_can_be_searched_with_and_whether_it_carries_state():
    assert (TransformerConfig().reads.keys, TransformerConfig().carries_state) == (
        ("ffn-input", "hidden"),
        False,
    )
    assert (LSTMConfig().reads.keys, LSTMConfig().carries_state) == (("hidden",), True)
    assert (TransformerXLConfig().reads.keys, TransformerXLConfig().carries_state) == (
        ("ffn-input", "hidden"),
        True,
    )


def test_only_segments_with_a_memory_of_a_length_change_at_test():
    xl = TransformerXLConfig(segment_length=8, mem_length=6)
    assert xl.reading(WindowSettings(5, 5)) == TransformerXLConfig(segment_length=5, mem_length=6)
    assert xl.reading(WindowSettings(5, 5, 0)) == TransformerXLConfig(
        segment_length=5, mem_length=0
    )
    assert xl.lengths.carried == 6
    for other in (TransformerConfig(), LSTMConfig()):
        assert other.reading(WindowSettings(5, 5)) == other
        assert other.lengths.carried is None


def test_cutoffs_are_checked_whatever_the_backbone():
    with pytest.raises(ValidationError, match="cutoffs"):
        LSTMConfig(cutoffs=(5, 5))


@pytest.mark.parametrize(("blocks", "usual"), [(1, 1), (2, 2), (3, 3), (4, 3), (8, 6), (12, 9)])
def test_memory_is_in_one_block_three_quarters_up_unless_others_are_named(blocks, usual):
    found = parse_model({"backbone": "memorizing-transformer", "layers": blocks})
    assert found.blocks_with("attention") == (usual,)
    assert parse_model(found.model_dump(mode="json")) == found
    named = parse_model(
        {"backbone": "memorizing-transformer", "layers": blocks, "attention": {"layers": [1]}}
    )
    assert named.blocks_with("attention") == (1,)
    assert parse_model({"backbone": "compressive-transformer", "layers": 2}).blocks_with(
        "attention"
    ) == (1, 2)
