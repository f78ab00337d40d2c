"""Translation of sentences by a model and its memory, batch by batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.examples.batching import padded
from stages.lineage.corpus import token_text
from stages.models.language_model import LanguageModel
from stages.text.excerpt import TokenText
from stages.translation.beam import BeamSettings, Hypothesis, beam_search
from stages.translation.decoder import ModelDecoder
from stages.translation.settings import DecodingSettings
from stages.translation.step_memory import Evidence, StepMemory

SENTENCES = (32, 128)
PROBABILITIES = 1 << 22
"""Minimum and maximum number of sentences in a batch, and the number of probabilities for a step in
between.

Many rows share the lists of a search, but with a large vocabulary few rows fit into memory."""


@dataclass(frozen=True)
class Translator:
    """A translation model, the settings of its search, and the memory that it reads at every step;
    None: no memory.
    """

    decoder: ModelDecoder
    settings: DecodingSettings
    device: torch.device
    text: TokenText
    memory: StepMemory | None = None
    max_tokens: int = 1 << 20
    """Maximum length of a translation by the model, in tokens."""

    def translate(self, sources: Sequence[np.ndarray], first: int = 0) -> list[Hypothesis]:
        """Translate sentences; results are in their order. Sentences of similar length are searched
        together.

        Args:
            sources: tokens of each sentence, with `<eos>` at the end.
            first: number of the first sentence in its split.
        """
        by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        hypotheses: dict[int, Hypothesis] = {}
        for start in range(0, len(by_length), self.batch):
            indices = by_length[start : start + self.batch]
            batch = [sources[index] for index in indices]
            numbers = [first + index for index in indices]
            results = self._translate_batch(batch, numbers)
            hypotheses.update(zip(indices, results, strict=True))
        return [hypotheses[index] for index in range(len(sources))]

    @property
    def batch(self) -> int:
        """Number of sentences that are searched together."""
        min_sentences, max_sentences = SENTENCES
        probabilities_of_sentence = self.settings.beam * self.text.vocabulary_size
        num_sentences = PROBABILITIES // probabilities_of_sentence
        return min(max_sentences, max(min_sentences, num_sentences))

    def _translate_batch(
        self, sources: Sequence[np.ndarray], numbers: Sequence[int]
    ) -> list[Hypothesis]:
        """Translate sentences together; `numbers` are those in their split."""
        if self.memory is not None:
            self.memory.begin(numbers, sources)
        longest = [min(self.settings.longest.of(source), self.max_tokens) for source in sources]
        beam = BeamSettings(self.settings.beam, self.settings.length_penalty)

        rows, mask = padded(sources, self.decoder.eos)
        source_rows = torch.from_numpy(rows).to(self.device)
        source_mask = torch.from_numpy(mask).to(self.device)
        return beam_search(self.decoder, source_rows, source_mask, longest, beam, self.memory)

    def written(self, hypothesis: Hypothesis) -> list[int]:
        """Tokens of a translation, followed by the end token unless it was cut."""
        return hypothesis.tokens if hypothesis.cut else [*hypothesis.tokens, self.decoder.eos]

    def evidence(self, source: np.ndarray, hypothesis: Hypothesis, number: int = 0) -> Evidence:
        """Evidence for the tokens that `written` gives; `number` is that of the sentence in its
        split.

        Only for a translator with a memory.
        """
        assert self.memory is not None, "evidence is of a memory"
        self.memory.begin([number], [source])
        target = torch.tensor(self.written(hypothesis), device=self.device)
        source_tokens = torch.from_numpy(np.asarray(source, np.int64)).to(self.device)
        step = self.decoder.steps(target, source_tokens)
        # All rows translate sentence 0 of this batch of one.
        sentences = torch.zeros_like(target)
        return self.memory.evidence(step, sentences, target)

    def text_of(self, tokens: Sequence[int]) -> str:
        """A translation as one line."""
        text = self.text.decoded(list(tokens))
        return text.replace("\n", " ").strip()


def open_translator(
    model: LanguageModel,
    tokens: Artifact,
    settings: DecodingSettings,
    device: torch.device,
    precision: str,
    memory: StepMemory | None = None,
    key: str | None = None,
) -> Translator:
    """Create the translator of a model over the vocabulary of `tokens`.

    Args:
        memory: memory that is read at every step; None: no memory.
        key: representation that is the query of the memory; None: no memory.
    """
    text = token_text(tokens)
    special = [token for token in text.special if token != text.eos]
    # Rows of an imported model that no token uses.
    unused = range(text.vocabulary_size, model.config.vocab_size or 0)
    never = (*special, *unused)

    needs_scores = False
    if memory is not None:
        sources = memory.policy.row.sources
        needs_scores = any(source.reading.reader_settings.needs_scores for source in sources)
    decoder = ModelDecoder(model, text.eos, key or "hidden", never, precision, needs_scores)
    max_tokens = model.config.reads.longest_context or Translator.max_tokens
    return Translator(decoder, settings, device, text, memory, max_tokens)
