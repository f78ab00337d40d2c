"""What every backbone keeps, registered here or from outside: subclass with a fixture `backbone`,
its name.
"""

from itertools import pairwise

import pytest
import torch

from stages.config import nondefaults
from stages.models import BACKBONES
from stages.models.backbone import Backbone
from stages.models.computing import autocast
from stages.models.config import BackboneConfig, parse_model
from stages.models.language_model import LanguageModel
from stages.translation.decoder import select_rows
from tests.stages.abstract_or_final import overridden

V, D, L, ROWS = 30, 8, 5, 2


class BackboneContract:
    @pytest.fixture
    def config(self, backbone):
        return parse_model({"backbone": backbone, "width": D}).sized(V, L)

    @pytest.fixture
    def model(self, config):
        """In evaluation mode; weights in float32, as on disk."""
        torch.manual_seed(0)
        return LanguageModel(config).eval()

    def encode(self, model, tokens, state=None):
        """Read tokens [B, L]; with sources, if the model wants some, of which the second is
        shorter.
        """
        source, mask = self.sources() if model.config.reads.source else (None, None)
        rows = slice(len(tokens))
        return model.encode(
            tokens,
            state,
            source=None if source is None else source[rows],
            source_mask=None if mask is None else mask[rows],
        )

    def sources(self):
        """Sources [B, S] and their mask."""
        return self.tokens(L + 2), torch.arange(L + 2) < torch.tensor([[L + 2], [3]])

    def tokens(self, length):
        return torch.randint(V, (ROWS, length), generator=torch.Generator().manual_seed(1))

    def test_nothing_but_what_is_abstract_is_overridden(self, backbone):
        assert (
            overridden(BACKBONES.load(backbone), Backbone)
            == overridden(BACKBONES.settings(backbone), BackboneConfig)
            == []
        )

    def test_settings_and_network_know_each_other(self, backbone, config, model):
        assert config.backbone == backbone
        assert isinstance(model.backbone, Backbone)
        assert type(config) is BACKBONES.settings(backbone)
        assert (
            parse_model(config.model_dump(mode="json"))
            == parse_model(nondefaults(config))
            == config
        )

    def test_keys_are_those_that_were_told_and_as_wide_as_the_model(self, config, model):
        encoding = self.encode(model, self.tokens(L))
        assert encoding.hidden.shape == (ROWS, L, D)
        assert [encoding.key(name).shape for name in config.reads.keys] == [(ROWS, L, D)] * len(
            config.reads.keys
        )
        assert ("ffn-input" in config.reads.keys) == (encoding.ffn_input is not None)

    @pytest.mark.parametrize(
        "cuts", [[], [1], [L], [3, 4, 11], [L, 2 * L, 3 * L], list(range(1, 17))]
    )
    def test_however_a_stream_is_cut_the_numbers_are_those_of_one_pass(self, config, model, cuts):
        if not config.carries_state:
            pytest.skip("reads windows, not streams")
        model.double()
        state, pieces = None, []
        with torch.no_grad():
            for start, stop in pairwise([0, *cuts, 17]):
                pieces.append(self.encode(model, self.tokens(17)[:, start:stop], state))
                state = pieces[-1].state
            whole = self.encode(model, self.tokens(17))
        for name in config.reads.keys:
            torch.testing.assert_close(
                torch.cat([piece.key(name) for piece in pieces], 1), whole.key(name)
            )
        torch.testing.assert_close(state, whole.state)

    def test_a_source_beside_a_longer_one_is_read_as_alone(self, config, model):
        if not config.reads.source:
            pytest.skip("reads no source")
        with torch.no_grad():
            beside = self.encode(model.double(), self.tokens(L)).hidden[1:]
            alone = model.encode(self.tokens(L)[1:], source=self.sources()[0][1:, :3]).hidden
        torch.testing.assert_close(beside, alone)

    @pytest.mark.parametrize("pieces", [[1] * (L - 1), [L - 1], [1, L - 2]])
    def test_a_target_in_pieces_has_the_numbers_of_one_pass_whatever_rows_are_kept(
        self, config, model, pieces
    ):
        if not config.reads.decodes:
            pytest.skip("writes no translation")
        tokens, rows = self.tokens(L), torch.tensor([1, 0, 1])
        with torch.no_grad():
            whole = self.encode(model.double(), tokens)
            state = select_rows(
                model.encode(tokens[:, :1], model.begin(*self.sources())).state, rows
            )
            found = []
            for piece in tokens[rows, 1:].split(pieces, 1):
                found.append(model.encode(piece, state))
                state = found[-1].state
        for name in config.reads.keys:
            torch.testing.assert_close(
                torch.cat([one.key(name) for one in found], 1), whole.key(name)[rows, 1:]
            )

    def test_dropout_ends_with_training(self, config, model):
        rates = [name for name in type(config).model_fields if name.endswith("dropout")]
        dropping = LanguageModel(config.model_copy(update=dict.fromkeys(rates, 0.5))).eval()
        dropping.load_state_dict(model.state_dict())
        with torch.no_grad():
            first, second = (self.encode(dropping, self.tokens(L)).hidden for _ in range(2))
        assert torch.equal(first, second)

    def test_no_position_sees_what_comes_after_it(self, model):
        changed = self.tokens(L).clone()
        changed[:, 3:] = (changed[:, 3:] + 1) % V
        with torch.no_grad():
            before, after = (
                self.encode(model, self.tokens(L)).hidden,
                self.encode(model, changed).hidden,
            )
        torch.testing.assert_close(before[:, :3], after[:, :3])

    def test_what_a_stream_carries_was_told_before(self, config, model):
        told, state, largest = config.state_spec(L), None, 0
        assert bool(told) == config.carries_state
        with torch.no_grad():
            for _ in range(4 * L + (config.lengths.carried or 0)):
                state = self.encode(model, self.tokens(1)[:1], state).state
                carried = state or {}
                assert carried.keys() == told.keys()
                for name, one in told.items():
                    array = carried[name]
                    assert str(array.dtype) == f"torch.{one.dtype}"
                    assert len(array.shape) == len(one.shape)
                    assert all(
                        size <= most for size, most in zip(array.shape, one.shape, strict=True)
                    )
                largest = max(largest, sum(array.nbytes for array in carried.values()))
        assert largest == config.state_bytes(L)

    def test_every_weight_learns(self, config, model):
        """Weights that write to a memory learn from a segment that reads it."""
        tokens = self.tokens(3 * L if config.carries_state else L)
        encoding = self.encode(model.train(), tokens)
        loss = model.loss(encoding.hidden.flatten(0, 1), tokens.flatten())
        (loss if encoding.auxiliary_loss is None else loss + encoding.auxiliary_loss).backward()
        assert [
            name for name, parameter in model.named_parameters() if parameter.grad is None
        ] == []

    def test_it_learns_in_low_precision(self, config, model):
        """Linear layers give bfloat16 then, beside normalized inputs and a memory in float32."""
        tokens = self.tokens(3 * L if config.carries_state else L)
        with autocast(torch.device("cpu"), "bf16"):
            hidden = self.encode(model.train(), tokens).hidden
        hidden.float().square().sum().backward()
        gradients = [
            parameter.grad for parameter in model.parameters() if parameter.grad is not None
        ]
        assert gradients and all(gradient.isfinite().all() for gradient in gradients)
