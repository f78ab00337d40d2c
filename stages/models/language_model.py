"""The language model: a vocabulary's embeddings, a backbone, and the vocabulary's softmax."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from stages.arguments import count
from stages.config import Settings
from stages.errors import UsageError
from stages.examples.examples import Batch
from stages.models import BACKBONES
from stages.models.backbone import (
    Backbone,
    EmbedsTexts,
    Encoding,
    Inputs,
    ReadsSource,
    State,
)
from stages.models.config import BackboneConfig, ModelConfig
from stages.models.gate import Gate, Gated
from stages.models.head_settings import HEADS
from stages.models.memory_mlp import MemoryMlp
from stages.models.soft_labels import SoftLabels
from stages.models.vocabulary import make_vocabulary
from stages.validation import validated

ADDED_WEIGHTS = ("gate.", "head.", "frozen.", "mlp.")
"""Prefixes of the names of weights that may be added to a trained model."""


class LanguageModel(nn.Module):
    """Tokens -> (f, g) -> distribution of the next token.

    Outputs are always computed in the precision of the weights (float32), with autocast off.
    """

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = make_vocabulary(config)
        self.backbone: Backbone = BACKBONES.load(config.backbone)(config)
        self.gate = (
            None
            if config.gate is None
            else Gate(config.width, config.gate, config.gate_values or "raw")
        )
        self.label_smoothing = 0.0
        """ε of label smoothing, which only applies in training."""
        self.head = (
            None if config.head is None else HEADS.load(config.head.name)(config.width, config.head)
        )
        self.mlp = None if config.mlp is None else MemoryMlp(config.width, config.mlp)
        self.frozen: LanguageModel | None = None
        """A frozen copy of the model before training, for a head that reads it."""
        if config.head is not None and config.head.reads_frozen:
            self.frozen = LanguageModel(config.model_copy(update={"head": None})).requires_grad_(
                False
            )

    def encode(
        self,
        tokens: Tensor,
        state: State = None,
        document_offset: Tensor | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Encoding:
        """Encode tokens int64 [B, L], with their state, source and mask; see `Inputs`.

        If the backbone has a prefix, it is put before each window. A window that already begins
        with it, as the first of a stream does, gets none: the model has never seen the prefix
        twice.
        """
        source, source_mask = self._with_prefix(source, source_mask)
        embedded = None if source is None else self.vocabulary.embed(source)
        context = (state, document_offset, source, source_mask, embedded)
        prefix = self.backbone.prefix
        prompt = self.backbone.prompt
        if prompt and state is None:
            tokens = torch.cat(
                (tokens.new_tensor(prompt).expand(len(tokens), -1), tokens[:, 1:]), 1
            )
        if prefix is None:
            encoding: Encoding = self.backbone(
                Inputs(self.vocabulary.embed(tokens), *context, tokens, mask)
            )
            return (
                encoding.select(lambda rows: rows[:, len(prompt) - 1 :])
                if prompt and state is None
                else encoding
            )
        if state is not None:
            return self._continue_windows(tokens, state, prefix)
        begun = (tokens[:, 0] == prefix)[:, None]
        behind, before = (F.pad(tokens, sides, value=prefix) for sides in ((0, 1), (1, 0)))
        padded = torch.where(begun, behind, before)  # causal: padding at the end changes nothing
        encoding = self.backbone(Inputs(self.vocabulary.embed(padded), *context, padded))
        # The row of the prefix is dropped; a window that begins with the prefix itself was padded
        # at the end.
        return encoding.select(
            lambda rows: torch.where(begun[..., None], rows[:, :-1], rows[:, 1:])
        )

    def _continue_windows(self, tokens: Tensor, state: State, prefix: int) -> Encoding:
        """Encode the next tokens of windows; the prefix is put before a window that begins."""
        # A state must not read padding, so all windows that begin here are alike.
        adds_prefix = not state and int(tokens[0, 0]) != prefix
        read = F.pad(tokens, (1, 0), value=prefix) if adds_prefix else tokens
        encoding: Encoding = self.backbone(Inputs(self.vocabulary.embed(read), state, tokens=read))
        return encoding.select(lambda rows: rows[:, 1:]) if adds_prefix else encoding

    def _with_prefix(
        self, source: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Sources [B, S] and their mask, with the backbone's source prefix put before each."""
        prefix = self.backbone.source_prefix
        if source is None or not prefix:
            return source, mask
        if mask is not None:
            mask = F.pad(mask, (len(prefix), 0), value=True)
        prefix_rows = source.new_tensor(prefix).expand(len(source), -1)
        return torch.cat((prefix_rows, source), 1), mask

    def read(self, batch: Batch, state: State = None) -> Encoding:
        """Encode a batch, starting from `state`."""
        return self.encode(
            batch.inputs, state, batch.document_offset, batch.source, batch.source_mask, batch.mask
        )

    def embed(self, batch: Batch) -> Tensor:
        """Vectors of whole documents, [B, k], as the encoder's own library makes them.

        Only for a backbone that is `EmbedsTexts`.
        """
        assert isinstance(self.backbone, EmbedsTexts), "the backbone makes no vector of a text"
        embedded = self.vocabulary.embed(batch.inputs)
        return self.backbone.embed(Inputs(embedded, mask=batch.mask))

    def advance(self, batch: Batch, state: State) -> State:
        """State after a batch, computing only what the state needs; only for a backbone that
        `replays`.
        """
        embedded = self.vocabulary.embed(batch.inputs)
        return self.backbone.advance(
            Inputs(embedded, state, batch.document_offset, tokens=batch.inputs)
        )

    def begin(self, source: Tensor, mask: Tensor | None = None) -> State:
        """State after reading sources, int64 [B, S], from which `encode` continues.

        The next token is then `<eos>`, or the last token of the backbone's prompt. The rest of the
        prompt is read here.

        Args:
            mask: tokens that count, bool [B, S]; None: all.
        Raises: UsageError if the model reads no source.
        """
        if not isinstance(self.backbone, ReadsSource):
            lacks = (
                "writes nothing from one (ReadsSource)"
                if self.config.reads.source
                else "reads no source"
            )
            raise UsageError(
                f"A model with backbone {self.config.backbone!r} {lacks}, so it does not translate: train one "
                "with --backbone encoder-decoder on pairs, or write text with memlm generate."
            )
        source, mask = self._with_prefix(source, mask)  # type: ignore[assignment]
        state: State = self.backbone.begin(self.vocabulary.embed(source), mask)
        if len(self.backbone.prompt) > 1:
            prompt = source.new_tensor(self.backbone.prompt[:-1]).expand(len(source), -1)
            state = self.encode(prompt, state).state
        return state

    def gated(self, hidden: Tensor, neighbors: Tensor) -> Gated:
        """Gate tokens of neighbours, int64 [N, k], -1 where missing, into hidden states [N, d];
        needs a gate.
        """
        assert self.gate is not None, "the model has no gate"
        with self._without_autocast(hidden):
            return self.gate(self._in_model_dtype(hidden), neighbors, self.vocabulary)

    def recalled(self, keys: Tensor) -> Tensor:
        """Hidden states [N, d] that an MLP memory recalls from the model's keys [N, d]; needs one.

        The model's softmax over them is the memory's distribution.
        """
        assert self.mlp is not None, "the model has no MLP memory"
        with self._without_autocast(keys):
            hidden: Tensor = self.mlp(self._in_model_dtype(keys))
        return hidden

    def label_scores(self, batch: Batch, encoding: Encoding | None = None) -> Tensor:
        """Logits of all labels for each example of a batch, float [B, |Y|]; needs a head.

        `encoding`: the encoding of the batch; None: it is read here.
        """
        assert self.head is not None, "the model has no head"
        encodings = [encoding or self.read(batch)]
        if self.frozen is not None:
            encodings.append(self.frozen.read(batch))
        hidden = [self._in_model_dtype(encoding.hidden) for encoding in encodings]
        with self._without_autocast(hidden[0]):
            return self.head(hidden[0], batch.scored, *hidden[1:])

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood in nats; hidden [N, d], targets int64 [N]. Training smooths
        the labels.
        """
        smoothing = self.label_smoothing if self.training else 0.0
        with self._without_autocast(hidden):
            return self.vocabulary.loss(self._in_model_dtype(hidden), targets, smoothing)

    def soft_loss(self, hidden: Tensor, labels: SoftLabels) -> Tensor:
        """Mean cross entropy in nats with labels that are spread over a few tokens.

        Args:
            hidden: [N, d].
            labels: shares of tokens at each of N positions.
        """
        with self._without_autocast(hidden):
            return self.vocabulary.soft_loss(self._in_model_dtype(hidden), labels)

    def joint_loss(
        self, hidden: Tensor, targets: Tensor, memory_target: Tensor, memory_total: Tensor
    ) -> Tensor:
        """Mean negative log-likelihood in nats, with one softmax over the scores of the vocabulary
        and of a memory.

        Args:
            hidden, targets: as in `loss`.
            memory_target, memory_total: logsumexp of the memory's scores, over the entries that
                hold the target and over all entries, float [N]; -inf where there are none.
        Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), equation 5.
        """
        with self._without_autocast(hidden):
            memory = (self._in_model_dtype(memory_target), self._in_model_dtype(memory_total))
            return self.vocabulary.joint_loss(self._in_model_dtype(hidden), targets, *memory)

    def log_prob(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of each target and the log-normalizer, both [N], in nats.

        The normalizer is the logsumexp of the vocabulary's scores; with adaptive softmax, of the
        head's scores. Not for training: no gradients.
        """
        with torch.no_grad(), self._without_autocast(hidden):
            return self.vocabulary.log_prob(self._in_model_dtype(hidden), targets)

    def log_probs(self, hidden: Tensor, *, with_gradients: bool = False) -> Tensor:
        """Log-probabilities [N, V] of every token, in nats; a loss asks for their gradients."""
        with torch.set_grad_enabled(with_gradients), self._without_autocast(hidden):
            return self.vocabulary.log_probs(self._in_model_dtype(hidden))

    def predict(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities [N, V] of every token, and the log-normalizer [N] of `log_prob`, in
        nats.

        Not for training: no gradients.
        """
        with torch.no_grad(), self._without_autocast(hidden):
            return self.vocabulary.predict(self._in_model_dtype(hidden))

    def _without_autocast(self, hidden: Tensor) -> torch.autocast:
        # In half precision the log-probabilities of rare tokens would lose their digits.
        return torch.autocast(hidden.device.type, enabled=False)

    def _in_model_dtype(self, hidden: Tensor) -> Tensor:
        return hidden.to(next(self.parameters()).dtype)


def new_model(vocabulary: int, segment_length: int, **settings: Any) -> LanguageModel:
    """A model with random weights.

    Args:
        vocabulary: number of token types.
        segment_length: number of inputs in a window or segment.
        settings: those of `[model]` in a preset, such as `backbone` and `width`.
    Raises: UsageError for an unknown backbone, for settings that it does not have, and for numbers
        below 1.
    """
    vocabulary = count(vocabulary, "vocabulary")
    segment_length = count(segment_length, "segment_length")
    config = validated(_NewModel, {"model": settings}).model
    return LanguageModel(config.sized(vocabulary, segment_length))


class _NewModel(Settings):
    """Settings that `new_model` takes, under the name that messages give them."""

    model: ModelConfig


FEW_LAYERS = 256
"""Largest number of layers for which the whole model is counted, which takes seconds."""


def parameter_count(config: BackboneConfig) -> int:
    """Number of parameters of a model, counted without allocating them.

    Above FEW_LAYERS layers, each further layer counts as much as the last of those.

    Raises: RuntimeError if a single tensor has more elements than torch can count.
    """
    layers = _num_layers(config)
    if layers <= FEW_LAYERS:
        return _num_parameters(unfilled_model(config))
    fewer, few = (
        parameter_count(config.model_copy(update={"layers": n}))
        for n in (FEW_LAYERS - 1, FEW_LAYERS)
    )
    return few + (few - fewer) * (layers - FEW_LAYERS)


def unfilled_model(config: BackboneConfig) -> LanguageModel:
    """A model whose weights have shapes but no values: they are on the meta device, and take no
    memory.
    """
    with torch.device("meta"), Unfilled():
        return LanguageModel(config)


def unfilled_model_within(config: BackboneConfig, num_weights: int) -> LanguageModel | None:
    """A model as of `unfilled_model`; None if it has more parameters than there are weights.

    Invalid settings may name millions of layers, so one of many layers is counted before.

    Raises: as of `parameter_count`.
    """
    if _num_layers(config) > FEW_LAYERS and parameter_count(config) > num_weights:
        return None
    model = unfilled_model(config)
    return model if _num_parameters(model) <= num_weights else None


def _num_layers(config: BackboneConfig) -> int:
    return int(getattr(config, "layers", 0))


def _num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


FILLING = frozenset(("normal_", "uniform_", "zero_", "fill_", "mul_", "div_"))


class Unfilled(TorchFunctionMode):
    """Skips initialization of tensors without values, which loads torch's compiler and sympy.

    Tensors with values are computed as always: models of transformers scale the frequencies of
    their positions in place while they are built.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = {} if kwargs is None else kwargs
        if func.__name__ in FILLING:
            tensor = args[0] if args else named["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **named)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode, and restore the mode of each module afterwards."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        # Rows of added tokens (LoRA) are joined once; where gradients flow, weights may change.
        with nullcontext() if torch.is_grad_enabled() else parametrize.cached():
            yield
    finally:
        # `train()` would also change modules that were in evaluation mode before, such as a frozen
        # encoder.
        for part, training in modes:
            part.training = training
