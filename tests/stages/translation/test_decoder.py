"""A trained model as a decoder: steps have the numbers of one teacher-forced pass, whatever else is
in the batch.
"""

import pytest
import torch

from stages.errors import UsageError
from stages.models.backbone import Encoding, State
from stages.models.backbones.window_configs import EncoderDecoderConfig
from stages.models.language_model import LanguageModel
from stages.translation.beam import BeamSettings, beam_search
from stages.translation.decoder import Decoder, ModelDecoder

V, EOS = 11, 0


@pytest.fixture
def model() -> LanguageModel:
    torch.manual_seed(1)
    made = (
        LanguageModel(EncoderDecoderConfig(vocab_size=V, width=8, heads=2, ffn_width=16))
        .double()
        .eval()
    )
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


@torch.no_grad()
def test_steps_are_one_pass_and_rows_stand_alone(model: LanguageModel) -> None:
    decoder: Decoder = ModelDecoder(model, EOS, "ffn-input", scores=True)
    source, mask = (
        torch.tensor([[3, 4, EOS], [5, EOS, 9]]),
        torch.tensor([[True] * 3, [True, True, False]]),
    )
    target = torch.tensor([[EOS, 2, 7, 1], [EOS, 8, 8, 3]])
    state = decoder.begin(source, mask)
    read = model.encode(target, source=source, source_mask=mask)
    for place, tokens in enumerate(target.T):
        step = decoder.step(tokens, state)
        torch.testing.assert_close(
            step.log_probs, model.log_probs(read.hidden[:, place]), rtol=1e-11, atol=1e-12
        )
        torch.testing.assert_close(
            step.key, read.key("ffn-input")[:, place], rtol=1e-11, atol=1e-12
        )
        scores = read.hidden[:, place] @ model.vocabulary.embedding.T
        torch.testing.assert_close(step.log_z, scores.logsumexp(-1), rtol=1e-11, atol=1e-12)
        state = step.state


@pytest.mark.parametrize("given", [None, {}, {"hidden": torch.zeros(1, 2, 8)}])
def test_a_state_without_a_row_for_each_is_refused_with_its_shapes(
    model: LanguageModel, given: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch's GRU gives it: layers first. Chosen rows would silently be wrong ones."""
    ids, mask = torch.tensor([[3, EOS], [5, EOS]]), torch.ones(2, 2, dtype=torch.bool)
    state = ModelDecoder(model, EOS).begin(ids, mask)
    after = None if given is None else {**(state if given else {}), **given}
    read = Encoding(torch.zeros(2, 1, 8), None, after)
    monkeypatch.setattr(model.backbone, "read", lambda inputs: read)
    with pytest.raises(UsageError, match=r"'encoder-decoder' gives a state of .* for 2 rows"):
        ModelDecoder(model, EOS).step(torch.tensor([EOS, EOS]), state)


def test_a_search_over_it_finds_what_greedy_steps_of_whole_prefixes_find(
    model: LanguageModel,
) -> None:
    sources = [[3, 4, EOS], [5, EOS], [6, 2, 2, 1, EOS]]
    longest = max(map(len, sources))
    ids = torch.tensor([one + [EOS] * (longest - len(one)) for one in sources])
    mask = torch.tensor([[True] * len(one) + [False] * (longest - len(one)) for one in sources])
    found = beam_search(ModelDecoder(model, EOS), ids, mask, [6] * 3, BeamSettings(beam=1))
    for source, hypothesis in zip(sources, found, strict=True):
        prefix = [EOS]
        while len(prefix) <= 6:
            with torch.no_grad():
                hidden = model.encode(torch.tensor([prefix]), source=torch.tensor([source])).hidden[
                    :, -1
                ]
                prefix.append(int(model.log_probs(hidden).argmax()))
            if prefix[-1] == EOS:
                break
        assert hypothesis.tokens == (prefix[1:-1] if prefix[-1] == EOS else prefix[1:])
