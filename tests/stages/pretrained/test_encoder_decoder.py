"""Encoder-decoders of transformers, taken apart: the same logits, and the same translations by beam
search.
"""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from stages.errors import DataError, UsageError
from stages.models.language_model import LanguageModel
from stages.pretrained.encoder_decoder import Languages
from stages.pretrained.location import locate
from stages.pretrained.model import describe
from stages.translation.beam import BeamSettings, beam_search
from stages.translation.decoder import ModelDecoder, select_rows
from tests.stages.pretrained.tiny import TRANSLATORS, V, saved_translator, stored_and_loaded
from tests.stages.translation.toy import padded

pytest.importorskip("transformers")
SOURCES = [[5, 9, 40, 7, 12, 0], [300, 2, 0], [77, 78, 79, 80, 81, 82, 83, 0]]


def imported(folder: Path, languages: Languages) -> LanguageModel:
    location = locate(str(folder))
    return stored_and_loaded(location, describe(location, None, languages))


def prompts(family: str, folder: Path) -> tuple[Languages, list[int], list[int]]:
    """How a family is asked, what stands before its sources, and the decoder's first inputs."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    match family:
        case "m2m_100":
            source, target = (tokenizer.token_to_id(token) for token in ("deu_Latn", "__en__"))
            return Languages("deu_Latn", "en"), [source], [0, target]
        case "t5":
            return Languages(task="The cat: "), tokenizer.encode("The cat:").ids, [1]
        case _:
            return Languages(), [], [1]


@pytest.mark.parametrize("family", TRANSLATORS)
@torch.no_grad()
def test_logits_and_translations_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    theirs = saved_translator(tmp_path, family)
    languages, before, prompt = prompts(family, tmp_path)
    model = imported(tmp_path, languages)
    sources, mask = padded([[*before, *source] for source in SOURCES], filler=1)
    targets = torch.randint(2, 300, (3, 6), generator=torch.Generator().manual_seed(1))
    read = torch.cat((torch.tensor(prompt).expand(3, -1), targets), 1)
    wanted = theirs(input_ids=sources, attention_mask=mask.long(), decoder_input_ids=read).logits
    inputs = torch.cat((torch.zeros(3, 1, dtype=torch.long), targets), 1)
    own_sources, own_mask = padded(SOURCES, filler=1)
    encoding = model.encode(inputs, source=own_sources, source_mask=own_mask)
    found = model.log_probs(encoding.hidden.flatten(0, 1))
    torch.testing.assert_close(
        found, wanted[:, len(prompt) - 1 :].log_softmax(-1).flatten(0, 1), rtol=1e-4, atol=1e-4
    )
    assert encoding.ffn_input is not None and encoding.ffn_input.shape == encoding.hidden.shape
    forced = {"forced_bos_token_id": prompt[1]} if len(prompt) > 1 else {}
    alpha = (
        0.0 if forced else 0.8
    )  # transformers counts the forced language as a token of the translation
    generated = theirs.generate(
        input_ids=sources,
        attention_mask=mask.long(),
        num_beams=3,
        length_penalty=alpha,
        early_stopping=True,
        max_new_tokens=8 + len(forced),
        do_sample=False,
        bad_words_ids=[[1], [7]],
        output_scores=True,
        return_dict_in_generate=True,
        **forced,
    )
    decoder = ModelDecoder(model, eos=0, never=(1, 7))
    translations = beam_search(decoder, own_sources, own_mask, [8] * 3, BeamSettings(3, alpha))
    for one, ids, score in zip(
        translations, generated.sequences, generated.sequences_scores, strict=True
    ):
        tokens = ids[len(prompt) :].tolist()
        ended = tokens.index(0) if 0 in tokens else len(tokens)
        assert one.tokens == tokens[:ended]
        assert one.score == pytest.approx(float(score), abs=1e-3)


@torch.no_grad()
def test_keys_are_inputs_of_the_last_feed_forward_block_of_the_decoder(tmp_path: Path) -> None:
    theirs = saved_translator(tmp_path, "marian")
    model, seen = imported(tmp_path, Languages()), []
    theirs.model.decoder.layers[-1].fc1.register_forward_pre_hook(
        lambda _, given: seen.append(given[0])
    )
    source, mask = padded(SOURCES[:1])
    theirs(input_ids=source, decoder_input_ids=torch.tensor([[1, 8, 9]]))
    encoding = model.encode(torch.tensor([[0, 8, 9]]), source=source, source_mask=mask)
    torch.testing.assert_close(encoding.key("ffn-input"), seen[0].view(1, 3, -1))


@torch.no_grad()
def test_token_by_token_gives_what_a_whole_sentence_gives(tmp_path: Path) -> None:
    """Also when rows are repeated and dropped on the way, as beams are."""
    saved_translator(tmp_path, "t5")
    model = imported(tmp_path, Languages())
    source, mask = padded(SOURCES, filler=9)
    targets = torch.tensor([[4, 5, 6, 7]]).expand(3, -1)
    whole = model.encode(
        torch.cat((torch.zeros(3, 1, dtype=torch.long), targets), 1),
        source=source,
        source_mask=mask,
    )
    decoder = ModelDecoder(model, 0, "ffn-input")
    rows, state = torch.arange(3), decoder.begin(source, mask)
    for place, token in enumerate((decoder.start, 4, 5, 6, 7)):
        step = decoder.step(torch.full((len(rows),), token), state)
        assert set(step.tokens.tolist()) == {
            token if place else 0
        }  # as in a text, `<eos>` stands before the first
        torch.testing.assert_close(
            step.key, whole.key("ffn-input")[rows, place], rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(
            step.log_probs, model.log_probs(whole.hidden[rows, place]), rtol=1e-4, atol=1e-5
        )
        chosen = torch.tensor([2, 2, 0]) if place == 1 else torch.arange(len(rows))
        rows, state = rows[chosen], select_rows(step.state, chosen)


def test_languages_that_a_model_lacks_or_needs_are_named(tmp_path: Path) -> None:
    saved_translator(tmp_path / "many", "m2m_100")
    location = locate(str(tmp_path / "many"))
    with pytest.raises(UsageError, match="--target-language"):
        describe(location, None, Languages(source="deu_Latn"))
    with pytest.raises(UsageError, match="deu_Latn"):
        describe(location, None, Languages("deu_Lat", "en"))


def test_a_vocabulary_for_each_side_is_refused(tmp_path: Path) -> None:
    saved_translator(
        tmp_path,
        "marian",
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=V - 20,
        tie_word_embeddings=False,
    )
    with pytest.raises(DataError, match="share one"):
        describe(locate(str(tmp_path)), None)
