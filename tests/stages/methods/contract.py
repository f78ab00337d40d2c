"""What every training method keeps, registered here or from outside: subclass with a fixture
`name`, the method's.
"""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from stages.config import nondefaults
from stages.examples.batching import aligned_order
from stages.examples.cutting import Cutting
from stages.examples.streams import Streams
from stages.methods import METHODS
from stages.methods.config import TRAIN, VALID, Batches, MethodSettings
from stages.methods.method import BatchIndex, Carried, Method
from stages.models import IMPORTED
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from stages.training.loop import Objective
from tests.stages.abstract_or_final import overridden

V, L, TOKENS, ROWS = 12, 5, 60, 4
FIRST, LATE = BatchIndex(0, 0, 100, 0), BatchIndex(50, 50, 100, 0)
MODELS = [
    {"layers": 2, "width": 8, "heads": 2, "ffn_width": 8, "dropout": 0.0},
    {"backbone": "lstm", "width": 8, "dropout": 0.0, "initial_range": 1.0},
    {
        **{
            "backbone": "huggingface",
            "width": 8,
            "dropout": 0.0,
            "last_ffn": "layers.1.mlp",
            "prefix": 3,
        },
        "architecture": {
            **{"model_type": "llama", "vocab_size": V, "hidden_size": 8, "intermediate_size": 8},
            **{"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16},
        },
    },
]


@dataclass
class Encoded:
    """Tokens from 0 on that validation has read."""

    encoding: object
    targets: torch.Tensor
    start: int = 0

    def key(self, name):
        return self.encoding.key(name).flatten(0, 1)


class MethodContract:
    @pytest.fixture(params=MODELS, ids=["windows", "streams", "imported"])
    def model(self, name, request):
        torch.manual_seed(0)
        model = {"vocab_size": V, **request.param}
        if IMPORTED in model.values():
            pytest.importorskip("transformers")
        made = (
            LanguageModel(
                METHODS.settings(name)().extend_model(parse_model(model).sized(V, L), None)
            )
            .double()
            .eval()
        )
        for weight in made.backbone.parameters() if IMPORTED in model.values() else ():
            torch.nn.init.normal_(weight, std=0.5)  # undefined until weights are loaded
        return made

    @pytest.fixture
    def method(self, name, model):
        settings = METHODS.settings(name)().complete(model.config, Batches(ROWS))
        tokens = (
            np.random.default_rng(3)
            .integers(-1, V, (TOKENS, settings.neighbors_read))
            .astype(np.int32)
        )
        side_inputs = {
            "batches": np.arange(TOKENS // L),
            "neighbors": {TRAIN: tokens, VALID: tokens},
        }
        return METHODS.load(name)(settings, side_inputs)

    @pytest.fixture
    def split(self):
        return Streams(np.random.default_rng(1).integers(0, V, TOKENS), 0, Cutting("windows", L, L))

    def order(self, method, model, epoch=0):
        if method.layout(model.config).streams:
            return aligned_order(TOKENS // L, ROWS)
        return method.order(TOKENS // L, ROWS, 1, epoch)

    def batches(self, method, model, split, index=LATE):
        return [method.batch(split, row, index) for row in self.order(method, model)[:2]]

    def test_nothing_but_what_is_abstract_is_overridden(self, name):
        assert (
            overridden(METHODS.load(name), Method)
            == overridden(METHODS.settings(name), MethodSettings)
            == []
        )

    def test_settings_name_the_method_and_survive_the_disk(self, name):
        settings = METHODS.settings(name)
        assert settings().method == name
        assert settings.model_validate(settings().model_dump(mode="json")) == settings()
        assert nondefaults(settings()) == {"method": name}

    def test_order_is_a_permutation_drawn_from_seed_and_epoch(self, method):
        order = method.order(TOKENS // L, ROWS, 1, 0)
        assert order.shape == (TOKENS // L // ROWS, ROWS)
        assert len(set(order.flatten())) == order.size and set(order.flatten()) <= set(
            range(TOKENS // L)
        )
        assert np.array_equal(order, method.order(TOKENS // L, ROWS, 1, 0))
        assert any(
            not np.array_equal(order, method.order(TOKENS // L, ROWS, 1, epoch))
            for epoch in range(1, 6)
        )

    def test_rows_that_belong_together_divide_a_batch(self, method, model):
        layout = method.layout(model.config)
        assert layout.rows_together >= 1 and ROWS % layout.rows_together == 0
        assert not layout.streams or (model.config.carries_state and layout.rows_together == 1)

    @pytest.mark.parametrize("index", [FIRST, LATE])
    def test_loss_is_a_finite_number_and_the_same_again(self, method, model, split, index):
        first, second = self.batches(method, model, split, index)
        loss, carried, _ = method.loss(model, first, Carried())
        assert loss.shape == () and torch.isfinite(loss)
        assert torch.equal(loss, method.loss(model, first, Carried())[0])
        assert bool(carried.tensors()) == method.layout(model.config).streams
        assert torch.isfinite(method.loss(model, second, carried.each(torch.Tensor.detach))[0])

    def test_the_first_loss_is_the_mean_of_log_p_with_or_without_what_the_method_adds(
        self, method, model, split
    ):
        """Of segments 0 and 1, which validation reads in one piece as a stream, or as windows."""
        rows = [0] if model.config.carries_state else [0, 1]
        batch = method.batch(split, np.array(rows), FIRST)
        loss = float(method.loss(model, batch, Carried())[0].detach())
        with torch.no_grad():
            encoding = model.encode(batch.inputs)
            read = Encoded(encoding, batch.targets.flatten())
            starts = torch.arange(len(rows)).repeat_interleave(L) * L
            own = method.log_prob(model, read, starts)
            plain = model.log_prob(read.key("hidden"), read.targets)[0]
        assert own.shape == read.targets.shape and (own <= 1e-6).all()
        means = [-float(log_p.mean()) for log_p in (own, plain)]
        assert any(loss == pytest.approx(mean, rel=1e-5) for mean in means), (
            f"the first mean is {loss}, and −log p is {means}: Loss.of(…, auxiliary=…) takes more"
        )

    def test_gradient_reaches_all_that_it_says_is_learnt(self, method, model, split):
        loss = method.loss(model, self.batches(method, model, split)[0], Carried()).mean
        learnt = [
            parameter for group in method.parameter_groups(model) for parameter in group.parameters
        ]
        assert learnt and len({id(parameter) for parameter in learnt}) == len(learnt)
        assert {id(parameter) for parameter in learnt} <= {
            id(parameter) for parameter in model.parameters()
        }
        loss.backward()
        assert all(parameter.grad is not None for parameter in learnt)

    def test_a_checkpoint_holds_what_a_batch_leaves_in_the_method(self, name, method, model, split):
        first, second = self.batches(method, model, split)
        model.train()
        method.loss(model, first, Carried())
        resumed = METHODS.load(name)(method.settings, method.side_inputs)
        resumed.load_state_dict(as_in_a_checkpoint(method.state_dict()))
        assert numbers(resumed) == numbers(method)
        losses = []
        for run in (method, resumed):
            torch.manual_seed(1)
            losses.append(run.loss(model, second, Carried()).mean)
        assert torch.equal(*losses)

    def test_what_a_layer_adds_to_the_loss_is_added_once(self, method, model, split):
        batch = self.batches(method, model, split)[0]
        objective = Objective(model, method, torch.device("cpu"), "fp32")
        plain = objective(batch, Carried()).total
        model.backbone.register_forward_hook(_with_auxiliary_loss, prepend=True)
        for _ in range(2):
            torch.testing.assert_close(objective(batch, Carried()).total, plain + 0.25)


def numbers(method):
    """Its attributes that are numbers, or tensors of them."""
    values = {}
    for name, value in vars(method).items():
        if isinstance(value, torch.Tensor):
            values[name] = value.tolist()
        elif isinstance(value, int | float):
            values[name] = value
    return values


def as_in_a_checkpoint(state):
    """Tensors, and values that went through JSON."""
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    values = {name: value for name, value in state.items() if name not in tensors}
    return json.loads(json.dumps(values)) | tensors


def _with_auxiliary_loss(backbone, inputs, encoding):
    encoding.auxiliary_loss = encoding.hidden.new_tensor(0.25)
