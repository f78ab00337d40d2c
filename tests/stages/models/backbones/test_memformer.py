"""The Memformer backbone: what reaches what, and its shortest way to the state."""

import numpy as np
import pytest
import torch

from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.models.backbone import Inputs
from stages.models.backbones.memformer import SlotWriter, biased_norm, slot_weights
from stages.models.backbones.stream_configs import MemformerConfig
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from tests.oracles.memformer import written
from tests.stages.models.backbones.contract import BackboneContract
from tests.stages.models.streams import embeddings

V, D, L = 30, 8, 4


def model(**changes):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": V,
        "width": D,
        "heads": 2,
        "ffn_width": 8,
        "slots": 3,
        "segment_length": L,
    }
    return LanguageModel(MemformerConfig(**{**sizes, **changes})).double().eval()


class TestItsShapes(BackboneContract):
    @pytest.fixture(
        params=[{"slots": 0}, {"summary_tokens": 0}, {"encoder_layers": 1, "layers": 1}]
    )
    def config(self, request):
        chosen = {"backbone": "memformer", "width": 8, "heads": 2, **request.param}
        return parse_model(chosen).sized(30, 5)

    @pytest.fixture
    def backbone(self):
        return "memformer"


@pytest.mark.parametrize("slots", [0, 3])
def test_two_segments_back_is_known_through_memory_alone(slots):
    """A change in the first segment is seen in the second; in the third and fourth where there are
    slots.
    """
    backbone, changed = model(slots=slots).backbone, embeddings(4 * L)
    changed[:, 1, 0] += 1
    with torch.no_grad():
        before, after = backbone(Inputs(embeddings(4 * L))).hidden, backbone(Inputs(changed)).hidden
    differs = (before != after).any(2)[0].tolist()
    assert differs == [False] + [True] * (2 * L - 1) + [slots > 0] * (2 * L)


def test_the_encoder_reads_as_the_equations_say():
    """Slots and encoding of a second segment, put together from its layers."""
    backbone, inputs = model(encoder_layers=1).backbone, embeddings(L + 1)
    with torch.no_grad():
        state = backbone(Inputs(inputs)).state
        (block,), writer = backbone.encoder, backbone.writer
        begun = writer.bias / writer.bias.norm(dim=1, keepdim=True)
        positions = torch.cat(
            (inputs[:, :L] + backbone.encoder_positions, backbone.summary_tokens.expand(2, 1, -1)),
            1,
        )
        x = positions * D**0.5
        x = x + _attended(block.attention, block.attention_norm(x), block.attention_norm(x))
        x = x + _attended(block.memory, block.memory_norm(x), begun.expand(2, -1, -1))
        x = x + block.ffn(block.ffn_norm(x))
        encoded = backbone.encoder_norm(x)
    torch.testing.assert_close(state["before"], encoded)
    torch.testing.assert_close(state["memory"], writer(begun.expand(2, -1, -1), encoded))
    torch.testing.assert_close(state["segment"], inputs[:, L:])


def _attended(attention, x, read):
    """Softmax attention, head by head."""
    q, (k, v), heads = attention.query(x), attention.read(read).chunk(2, 2), []
    for part in (slice(0, D // 2), slice(D // 2, D)):
        scores = q[:, :, part] @ k[:, :, part].transpose(1, 2) / (D // 2) ** 0.5
        heads.append(scores.softmax(2) @ v[:, :, part])
    return attention.out(torch.cat(heads, 2))


@pytest.mark.parametrize("training", [False, True])
def test_the_shortest_way_leads_to_the_same_state(training):
    """With dropout it draws the same numbers, for the encoder comes before the decoder."""
    net = model(dropout=0.3).train(training)
    state = net.backbone(Inputs(embeddings(4 * L)[:, :L])).state
    found = []
    for read in (lambda inputs: net.backbone(inputs).state, net.backbone.advance):
        torch.manual_seed(3)
        found.append(read(Inputs(embeddings(4 * L)[:, L : 2 * L], state)))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


def test_a_part_of_a_segment_is_read_as_it_is():
    backbone, part = model().backbone, Inputs(embeddings(4 * L)[:, :1])
    torch.testing.assert_close(backbone.advance(part), backbone(part).state)


def test_a_loss_reaches_what_wrote_memory_two_segments_before():
    net, inputs = model(), embeddings(3 * L).requires_grad_()
    (gradient,) = torch.autograd.grad(
        net.backbone(Inputs(inputs)).hidden[:, 2 * L :].square().sum(), inputs
    )
    assert gradient[:, :L].any()


def test_low_precision_is_near_and_keeps_exact_slots():
    net = model().float()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        low = net.backbone(Inputs(embeddings(4 * L).float()))
    with torch.no_grad():
        full = net.backbone(Inputs(embeddings(4 * L).float()))
    assert 0 < float((low.hidden.float() - full.hidden).abs().max()) < 0.2
    assert low.state["memory"].dtype == torch.float32


def test_segments_of_another_length_are_refused():
    with pytest.raises(UsageError, match="--context 4, not 8"):
        model().config.reading(WindowSettings(8, 8))
    with pytest.raises(UsageError, match=r"segment_length.*\b4\b.*\b8\b"):
        model().config.sized(V, 8)


@pytest.mark.parametrize(
    "changes",
    [{"slots": -1}, {"temperature": 0}, {"forgetting": 0.0}, {"heads": 3}, {"encoder_layers": 0}],
)
def test_sizes_that_do_not_fit_are_refused(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        model(**changes)


K = 3


def writer(slots=K, temperature=0.25, forgetting=0.1):
    torch.manual_seed(0)
    return SlotWriter(MemformerConfig(width=D, heads=2), slots, temperature, forgetting).double()


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("temperature", [0.01, 0.25, 3.0])
@pytest.mark.parametrize("rows", [1, 5])
def test_slots_are_written_as_the_equations_say(temperature, rows):
    net, memory, read = writer(temperature=temperature), drawn(2, K, D), drawn(2, rows, D)
    weights = {name: p.detach().numpy() for name, p in net.named_parameters()}
    with torch.no_grad():
        got = net(memory, read)
    for row in range(2):
        want = written(weights, memory[row].numpy(), read[row].numpy(), 2, temperature)
        np.testing.assert_allclose(got[row], want, rtol=1e-10, atol=1e-12)


def test_gradients_are_those_of_small_steps():
    inputs = [drawn(1, 2, K, 4)[:, :, :, :3] * scale for scale in (0.5, 0.7, 0.9)]
    assert torch.autograd.gradcheck(
        slot_weights, [*(part.requires_grad_() for part in inputs), 0.5]
    )
    assert torch.autograd.gradcheck(
        biased_norm, [drawn(2, K, D).requires_grad_(), drawn(K, D).requires_grad_()]
    )


@pytest.mark.parametrize(("forgetting", "least", "most"), [(0.1, 0.6, 0.75), (1.15, 0.99, 1.0)])
def test_a_slot_that_is_given_nothing_moves_to_where_it_began(forgetting, least, most):
    """Eight timesteps after it stood at a right angle to its bias."""
    bias, slot = torch.zeros(1, D, dtype=torch.float64), torch.zeros(1, 1, D, dtype=torch.float64)
    bias[0, 0], slot[0, 0, 1] = forgetting, 1
    for _ in range(8):
        slot = biased_norm(slot, bias)
    assert least < float(slot[0, 0, 0]) <= most


def test_slots_begin_at_their_biases_no_two_alike_and_short():
    net = writer(16, forgetting=0.2)
    assert torch.allclose(
        net.bias.detach().norm(dim=1), torch.full((16,), 0.2, dtype=torch.float64)
    )
    begun = net.begin(2).detach()
    torch.testing.assert_close(begun.norm(dim=2), torch.ones(2, 16, dtype=torch.float64))
    assert float((begun[0] @ begun[0].T - torch.eye(16)).max()) < 0.99
