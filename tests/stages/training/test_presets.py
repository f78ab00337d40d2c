import pytest
import torch
from pydantic import ValidationError

from stages.errors import UsageError
from stages.methods.config import Batches
from stages.models import NAMED, trainable_backbones
from stages.models.backbones.stream_configs import LSTMConfig
from stages.models.language_model import LanguageModel
from stages.training.config import TrainConfig
from stages.training.presets import (
    DEFAULT,
    choose_preset,
    load_preset,
    preset_names,
    training_preset,
)

WIKITEXT103_TYPES = 267_735
BYTES = 257


def parameters(name, types, **settings):
    config = TrainConfig.model_validate(load_preset(name) | settings)
    model = config.model.sized(types, config.segment_length)
    with torch.device("meta"):
        made = LanguageModel(config.memory.extend_model(model, None) if config.memory else model)
    return sum(parameter.numel() for parameter in made.parameters())


def counted(clusters, width, ffn, layers, *, relative=False):
    """Weights of the published architecture, by hand; clusters: (words, width) of each.

    Relative attention has a projection of distances and two biases u and v, and none of queries,
    keys and values.
    """
    vocabulary = sum(words * narrow + narrow * width for words, narrow in clusters)
    cluster_entries = (len(clusters) - 1) * width
    attention = 5 * width * width + 3 * width if relative else 4 * width * width + 4 * width
    feed_forward = 2 * width * ffn + ffn + width
    norms = 2 * width
    return vocabulary + cluster_entries + layers * (attention + feed_forward + 2 * norms) + norms


@pytest.mark.parametrize(
    ("name", "published", "widths", "shape"),
    [
        ("wikitext103-247m", 247e6, (1024, 256, 64), (1024, 4096, 16)),
        ("wikitext103-150m", 150e6, (410, 410, 410), (410, 2100, 16)),
        ("wikitext103-7m", 7e6, (128, 32, 8), (128, 512, 8)),
    ],
)
def test_parameter_counts_are_the_published_ones(name, published, widths, shape):
    count = parameters(name, WIKITEXT103_TYPES)
    assert count == counted([*zip((20_000, 40_000, 207_735), widths, strict=True)], *shape)
    assert count == pytest.approx(published, rel=0.02)


def test_the_full_softmax_of_bytes_leaves_38_million_parameters():
    count = parameters("enwik8-38m", BYTES)
    full_softmax = BYTES * 512
    assert count == full_softmax + counted([], 512, 2048, 12) + 512
    assert count == pytest.approx(38e6, rel=0.02)


@pytest.mark.parametrize(
    ("name", "types", "millions"),
    [("sru-enwik8", BYTES, 42), ("sru-wikitext103", WIKITEXT103_TYPES, 150)],
)
def test_sru_have_the_published_number_of_weights(name, types, millions):
    assert parameters(name, types) / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize(
    ("name", "shape", "relative"),
    [
        ("spalm-wikitext103", (512, 5184, 18), True),
        ("spalm-wikitext103-encoder", (512, 5440, 18), False),
    ],
)
def test_the_models_of_spalm_on_words_have_142_million_parameters(name, shape, relative):
    count = parameters(name, WIKITEXT103_TYPES)
    assert count == counted(
        [(20_000, 512), (40_000, 128), (207_735, 32)], *shape, relative=relative
    )
    assert round(count / 1e6) == 142


@pytest.mark.parametrize(
    ("name", "shape", "relative"),
    [("spalm-enwik8", (512, 2944, 24), True), ("spalm-enwik8-encoder", (512, 3200, 24), False)],
)
def test_the_models_of_spalm_on_bytes_have_104_million_parameters(name, shape, relative):
    count = parameters(name, BYTES)
    assert count == BYTES * 512 + counted([], *shape, relative=relative) + 512
    assert round(count / 1e6) == 104


@pytest.mark.parametrize(
    ("name", "types"), [("spalm-wikitext103", WIKITEXT103_TYPES), ("spalm-enwik8", BYTES)]
)
@pytest.mark.parametrize(("gate", "added"), [("vector", 512 * 512), ("scalar", 512)])
def test_a_gate_adds_nothing_but_its_weight(name, types, gate, added):
    preset = load_preset(name)
    gated = parameters(name, types, method="spalm", model=preset["model"] | {"gate": gate})
    assert gated == parameters(name, types) + added


@pytest.mark.parametrize(
    ("name", "length", "memory"), [("spalm-wikitext103", 512, 512), ("spalm-enwik8", 768, 1536)]
)
def test_segments_and_short_term_memory_of_spalm_are_those_of_the_paper(name, length, memory):
    """Yogatama et al. 2021, sections 4.2 and 4.4; the encoder reads segments as long."""
    config = TrainConfig.model_validate(load_preset(name))
    assert (config.segment_length, config.model.mem_length) == (length, memory)
    assert load_preset(f"{name}-encoder")["segment_length"] == length


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_valid_and_complete(name):
    table = load_preset(name)
    config = TrainConfig.model_validate(table)
    left_out = {
        "epochs",
        "long_length",
        "memory",
        "lora",
        "compile",
        "order",
        "label_smoothing",
        "wider",
        "deeper",
    }
    assert set(table) - {"label_smoothing", "memory"} == set(TrainConfig.model_fields) - left_out
    assert config.method == ("replay" if name == "tasks-base" else "lm")


@pytest.mark.parametrize(
    ("name", "update_tokens", "accumulate", "segments"),
    [
        ("wikitext103-247m", 73_728, 3, 24),
        ("wikitext103-150m", 36_000, 4, 240),
        ("wikitext103-7m", 24_576, 1, 8),
        ("enwik8-38m", 49_152, 4, 96),
        ("spalm-wikitext103", 32_768, 2, 64),
        ("spalm-enwik8", 49_152, 8, 64),
    ],
)
def test_batches_are_those_of_the_table(name, update_tokens, accumulate, segments):
    config = TrainConfig.model_validate(load_preset(name))
    assert config.batch_tokens * config.accumulate == update_tokens
    assert config.accumulate == accumulate
    assert update_tokens // config.segment_length == segments


@pytest.mark.parametrize(
    ("name", "asked", "consecutive", "in_batch"),
    [
        ("wikitext103-247m", {"consecutive": 4}, 4, 24_576),
        ("wikitext103-150m", {"consecutive": 60}, 60, 9_000),
        ("wikitext103-7m", {"consecutive": 8}, 8, 24_576),
        ("enwik8-38m", {"consecutive": 24}, 24, 12_288),
    ],
)
def test_memories_in_a_batch_are_those_of_the_table(name, asked, consecutive, in_batch):
    config = TrainConfig.model_validate(
        load_preset(name) | {"method": "trime-long", "memory": asked}
    )
    sized = config.memory.complete(config.model, Batches(config.batch_segments))
    assert sized.consecutive == consecutive
    assert config.batch_tokens == in_batch
    assert config.batch_segments % consecutive == 0


@pytest.mark.parametrize(
    ("name", "optimizer", "lr", "clip_norm", "steps", "schedule", "warmup"),
    [
        ("wikitext103-247m", "sgd", 1.0, 0.1, 286_000, "cosine", 16_000),
        ("wikitext103-150m", "adam", 2.5e-4, 0.0, 400_000, "cosine", 0),
        ("wikitext103-7m", "adam", 5e-4, 0.0, 200_000, "inverse-sqrt", 8_000),
        ("enwik8-38m", "adam", 2.5e-4, 0.0, 400_000, "cosine", 0),
    ],
)
def test_optimizers_and_schedules_are_those_of_the_table(
    name, optimizer, lr, clip_norm, steps, schedule, warmup
):
    config = TrainConfig.model_validate(load_preset(name))
    assert (config.optimizer.name, config.optimizer.lr, config.clip_norm) == (
        optimizer,
        lr,
        clip_norm,
    )
    assert (config.steps, config.schedule.name, config.schedule.warmup) == (steps, schedule, warmup)


@pytest.mark.parametrize(
    ("name", "rows", "dropout", "adaptive"),
    [("lstm-1024", 20, 0.65, False), ("lstm-1024-medium", 128, 0.45, True)],
)
def test_lstms_are_those_of_the_paper(name, rows, dropout, adaptive):
    """Grave et al. 2017, section 4: what our copy still says of them."""
    config = TrainConfig.model_validate(load_preset(name))
    assert (config.batch_tokens, config.accumulate) == (rows * 30, 1)
    assert config.segment_length == 30
    assert config.optimizer.name == "adagrad"
    assert config.model == LSTMConfig(
        width=1024,
        dropout=dropout,
        tied=False,
        initial_range=0.05,
        cutoffs=config.model.cutoffs if adaptive else (),
    )


@pytest.mark.parametrize("backbone", [None, *trainable_backbones()])
def test_every_backbone_has_a_preset_for_trying_things_out(backbone):
    preset = choose_preset(None, backbone)
    assert TrainConfig.model_validate(preset).model.backbone == (backbone or "transformer")
    named = load_preset(DEFAULT if backbone in (None, "transformer") else f"tiny-{backbone}")
    assert preset | {"steps": named["steps"]} == named
    assert "steps" not in preset


@pytest.mark.parametrize(
    ("name", "backbone"), [("lstm-1024", None), ("lstm-1024", "lstm"), ("tiny", "transformer")]
)
def test_a_preset_of_the_backbone_that_is_asked_for(name, backbone):
    assert choose_preset(name, backbone) == load_preset(name)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_model_has_the_presets_of_its_backbone(name):
    assert choose_preset(None, name) == choose_preset(None, "transformer-xl")
    assert choose_preset("enwik8-small-xl", name) == load_preset("enwik8-small-xl")
    with pytest.raises(UsageError, match=r"'transformer'.*'transformer-xl'"):
        choose_preset("tiny", name)


@pytest.mark.parametrize(
    ("name", "backbone", "message"),
    [
        (
            "tiny",
            "lstm",
            "--model tiny is for the backbone 'transformer', not for 'lstm'; leave --backbone out",
        ),
        ("lstm-1024", "transformer", "is for the backbone 'lstm', not for 'transformer'"),
        ("tiny", "lsmt", "There is no backbone 'lsmt'; did you mean 'lstm'"),
        (None, "lsmt", "There is no backbone 'lsmt'; did you mean 'lstm'"),
    ],
)
def test_presets_of_another_backbone_are_refused(name, backbone, message):
    with pytest.raises(UsageError, match=message):
        choose_preset(name, backbone)


def test_unknown_names_bring_the_nearest():
    with pytest.raises(UsageError, match="'wikitext2-small'"):
        load_preset("wikitext2-smal")


def test_files_of_the_users_own(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("batch-tokens = 3\n[model]\nlayers = 1\n")
    assert load_preset(str(file)) == {"batch_tokens": 3, "model": {"layers": 1}}
    file.write_text("steps = \n")
    with pytest.raises(UsageError, match=r"mine\.toml"):
        load_preset(str(file))
    with pytest.raises(UsageError):
        load_preset(str(tmp_path / "other.toml"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"batch_tokens": 1000, "segment_length": 300},
            "not a multiple of segment_length 300; 900 is",
        ),
        ({"steps": -1}, "greater than 0"),
        ({"optimizer": {"lr": float("nan")}}, "finite"),
        ({"stepps": 3}, "Extra inputs"),
    ],
)
def test_nonsense_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        TrainConfig.model_validate(settings)


@pytest.mark.parametrize("name", preset_names())
def test_no_preset_is_slow_where_the_processor_has_no_bf16(name):
    assert load_preset(name)["precision"] in ("auto", "fp32")


def test_settings_of_a_presets_method_are_of_no_other_method():
    own, other = (training_preset("tasks-base", {"method": m}, None) for m in ("replay", "a-gem"))
    assert own["memory"] == {"every": 10_000, "rate": 0.01} and "memory" not in other
    assert TrainConfig.model_validate(own).memory.draw_size == 100
