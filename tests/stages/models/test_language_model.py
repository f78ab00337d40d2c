import json
import subprocess
import sys

import pytest
import torch
from pydantic import ValidationError
from safetensors import safe_open
from safetensors.torch import save_file

from stages.errors import ArtifactError, ResourceError, UsageError
from stages.models import devices
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.computing import autocast, resolve_device, tune_allocator
from stages.models.config import parse_model
from stages.models.devices import device_name, device_type, resolve_precision
from stages.models.language_model import LanguageModel
from stages.models.layers.sinusoids import sinusoids
from stages.models.weights import load_model, save_weights


def model(**settings):
    torch.manual_seed(0)
    defaults = {"vocab_size": 50, "layers": 2, "width": 16, "heads": 2, "ffn_width": 32}
    return LanguageModel(TransformerConfig(**defaults | {"max_positions": 12} | settings)).eval()


def tokens(rows=2, length=12):
    return torch.randint(50, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("settings", [{}, {"positions": "sinusoidal", "activation": "relu"}])
def test_no_position_sees_its_future(settings):
    a, b = tokens(), tokens()
    b[:, 7:] = (b[:, 7:] + 1) % 50
    net = model(**settings)
    first, second = net.encode(a), net.encode(b)
    for name in ("hidden", "ffn-input"):
        torch.testing.assert_close(first.key(name)[:, :7], second.key(name)[:, :7])
        assert not torch.allclose(first.key(name)[:, 7:], second.key(name)[:, 7:])


def test_ffn_input_is_what_the_last_feed_forward_block_reads():
    net = model()
    seen = []
    net.backbone.blocks[-1].ffn.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    encoding = net.encode(tokens())
    assert torch.equal(seen[0], encoding.ffn_input)
    assert encoding.ffn_input.shape == encoding.hidden.shape == (2, 12, 16)


def test_order_of_tokens_matters():
    a = tokens(1)
    net = model()
    assert not torch.allclose(
        net.encode(a).hidden[0, -1], net.encode(a[:, [1, 0, *range(2, 12)]]).hidden[0, -1]
    )


def test_a_window_longer_than_the_learned_positions_is_refused():
    with pytest.raises(UsageError, match=r"\b13\b.*\b12\b"):
        model().encode(tokens(length=13))
    assert model(positions="sinusoidal").encode(tokens(length=13)).hidden.shape[1] == 13


def test_sinusoids_turn_from_fast_to_slow():
    table = sinusoids(5, 8)
    position = torch.arange(5.0)
    torch.testing.assert_close(table[:, 0], position.sin())
    torch.testing.assert_close(table[:, 7], (position / 10_000).cos())


def test_head_computes_in_full_precision_under_autocast():
    net = model(cutoffs=(10, 20), factor=2)
    targets = tokens(1)[0]
    with autocast("cpu", "bf16"):
        hidden = net.encode(tokens(1)).hidden[0]
        inside = net.loss(hidden, targets), *net.log_prob(hidden, targets)
    outside = net.loss(hidden, targets), *net.log_prob(hidden, targets)
    for got, want in zip(inside, outside, strict=True):
        assert got.dtype == torch.float32
        assert torch.equal(got, want)


def test_a_table_of_the_host_is_opened_there(tmp_path):
    """Never on the device, which may be smaller."""
    lookup = {"name": "hashed-ngrams", "slots": 20, "on_host": True}
    net = LanguageModel(
        parse_model({"backbone": "transformer", "width": 8, "lookup": lookup}).sized(50, 8)
    )
    save_weights(net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model": net.config.model_dump(mode="json")}))
    loaded = load_model(tmp_path, "meta")
    there = {name for name, parameter in loaded.named_parameters() if not parameter.is_meta}
    assert there and all(name.endswith("lookup.table") for name in there)


@pytest.mark.parametrize("settings", [{}, {"cutoffs": (10, 20), "factor": 2}])
def test_a_loss_may_ask_for_gradients_of_all_probabilities(settings):
    net = model(**settings)
    hidden = torch.randn(3, net.config.width, requires_grad=True)
    assert not net.log_probs(hidden).requires_grad
    log_p = net.log_probs(hidden, with_gradients=True)
    targets = torch.tensor([1, 12, 49])
    (of_probabilities,) = torch.autograd.grad(-log_p[torch.arange(3), targets].mean(), hidden)
    (of_loss,) = torch.autograd.grad(net.loss(hidden, targets), hidden)
    torch.testing.assert_close(of_probabilities, of_loss)


@pytest.mark.parametrize("settings", [{}, {"cutoffs": (10, 20), "factor": 2}])
def test_weights_survive_the_disk(settings, tmp_path):
    net = model(**settings)
    if net.config.cutoffs:
        net.vocabulary.sort_by(torch.arange(50))
    save_weights(net.state_dict(), tmp_path / "model.safetensors")
    settings = json.dumps({"model": net.config.model_dump(mode="json")})
    (tmp_path / "config.json").write_text(settings)
    loaded = load_model(tmp_path, "cpu")
    assert not loaded.training
    assert loaded.config == net.config
    hidden = net.encode(tokens()).hidden
    assert torch.equal(loaded.encode(tokens()).hidden, hidden)
    assert torch.equal(loaded.log_probs(hidden[0]), net.log_probs(hidden[0]))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", b"[" * 100_000),
        ("config.json", b"[]"),
        ("config.json", b'{"model": 3}'),
        ("config.json", b'{"model": {"backbone": "transformer"}}'),
        ("config.json", b'{"model": {"backbone": "memformer", "vocab_size": 50}}'),
        ("config.json", b"\xff"),
        ("model.safetensors", b"\xff" * 100),
        ("model.safetensors", b""),
        ("model.safetensors", b"\x02\0\0\0\0\0\0\0{}"),
    ],
)
def test_files_of_a_model_that_hold_none_are_damage(tmp_path, file, content):
    net = model()
    save_weights(net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model": net.config.model_dump(mode="json")}))
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ArtifactError, match=file):
        load_model(tmp_path, "cpu")


@pytest.mark.parametrize("change", [{"width": 24}, {"activation": "relu"}])
def test_settings_of_another_model_than_the_manifests_are_damage(tmp_path, change):
    net = model()
    save_weights(net.state_dict(), tmp_path / "model.safetensors")
    settings = net.config.model_dump(mode="json")
    (tmp_path / "config.json").write_text(json.dumps({"model": settings}))
    (tmp_path / "manifest.json").write_text(json.dumps({"config": {"model": settings}}))
    load_model(tmp_path, "cpu")
    (tmp_path / "manifest.json").write_text(json.dumps({"config": {"model": settings | change}}))
    with pytest.raises(ArtifactError, match=r"config\.json.*manifest\.json"):
        load_model(tmp_path, "cpu")


def test_weights_of_another_model_are_damage(tmp_path):
    save_weights(model(width=8).state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        json.dumps({"model": model().config.model_dump(mode="json")})
    )
    with pytest.raises(ArtifactError, match="safetensors"):
        load_model(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda weight: weight.to(torch.float8_e4m3fn), "weights of another model"),
        (lambda weight: weight.double() + 1e300, "no finite numbers"),
    ],
)
def test_weights_that_no_model_computes_with_are_damage(tmp_path, weights, message):
    net = model()
    (tmp_path / "config.json").write_text(json.dumps({"model": net.config.model_dump(mode="json")}))
    tensors = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
    name = next(name for name, tensor in tensors.items() if tensor.dim() == 2)
    save_file(tensors | {name: weights(tensors[name])}, tmp_path / "model.safetensors")
    with pytest.raises(ArtifactError, match=message):
        load_model(tmp_path, "cpu")


def test_a_transformer_carries_nothing():
    assert model().config.state_spec(12) == {}


def test_tied_embeddings_are_stored_once(tmp_path):
    save_weights(model().state_dict(), tmp_path / "w")
    with safe_open(tmp_path / "w", "pt") as file:
        assert [k for k in file.keys() if tuple(file.get_slice(k).get_shape()) == (50, 16)] == [  # noqa: SIM118
            "vocabulary.embedding"
        ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 15}, "not a multiple of heads"),
        ({"cutoffs": (5, 5)}, "must increase"),
        ({"cutoffs": (5, 9, 12), "factor": 16}, "cannot be divided by factor"),
        ({"dropout": 1.0}, "less than 1"),
        ({"layers": -1}, "greater than 0"),
    ],
)
def test_shapes_that_cannot_be_built_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        model(**settings)


def test_a_model_is_opened_without_the_compiler_of_torch(tmp_path):
    net = model()
    save_weights(net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model": net.config.model_dump(mode="json")}))
    program = (
        "import pathlib, sys\n"
        "from stages.models.weights import load_model\n"
        "load_model(pathlib.Path(sys.argv[1]), 'cpu')\n"
        "sys.exit('sympy' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, tmp_path], timeout=120).returncode == 0


def test_a_device_is_told_without_torch_where_no_driver_is(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(devices, "_has_driver", lambda: False)
    assert device_name("auto") == device_type("auto") == "cpu"
    assert "torch" not in sys.modules
    with pytest.raises(ResourceError, match="--device cpu"):
        device_type("cuda")


def test_devices_and_precision():
    assert resolve_device("cpu").type == "cpu"
    assert resolve_precision("auto", "cpu") == "fp32"
    assert resolve_precision("auto", "cuda") == "bf16"
    assert resolve_precision("bf16", "cpu") == "bf16"
    with pytest.raises(UsageError, match="tpu"):
        resolve_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ResourceError, match="--device cpu"):
            resolve_device("cuda")
    tune_allocator()
