"""Models of the package transformers as backbones, from windows of embeddings to representations."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from stages.errors import UsageError
from stages.models.backbone import (
    Backbone,
    EmbedsTexts,
    Encoding,
    Inputs,
    JoinsRows,
    ReadsSource,
    State,
)
from stages.models.backbones.sentence_vector import SentenceVector
from stages.models.backbones.window_cache import NAMES, WindowCache, join
from stages.models.backbones.window_configs import (
    HuggingFaceConfig,
    HuggingFaceEncoderDecoderConfig,
    TextEncoderConfig,
)

CAUSAL = "AutoModelForCausalLM"
TRANSLATES = "AutoModelForSeq2SeqLM"
ENCODES = "AutoModel"
"""Auto classes of transformers, which select the class of a model by its settings."""


def model_of_settings(architecture: dict[str, Any], kind: str) -> Any:
    """Build a model from its settings; buffers (rotations, masks) are set, weights are undefined.

    Args:
        architecture: settings, `config.json` of transformers.
        kind: name of an auto class.
    Raises: UsageError if transformers is not installed.
    """
    try:
        import transformers
        from transformers.initialization import no_init_weights
        from transformers.utils import logging
    except ImportError:
        raise UsageError(
            "Imported models need the package transformers: pip install 'memlm[hf]'."
        ) from None
    logging.set_verbosity_error()
    settings = transformers.AutoConfig.for_model(**_with_infinities(architecture))
    # Weights are loaded later, and drawing them would take longer than everything else.
    with torch.device("cpu"), no_init_weights():
        return getattr(transformers, kind).from_config(
            settings, dtype=torch.float32, trust_remote_code=False
        )


def _with_infinities(settings: Any) -> Any:
    """Settings read from JSON, with infinities and NaN, which JSON lacks and transformers writes as
    objects.

    >>> _with_infinities({"time_step_limit": [0.0, {"__float__": "Infinity"}]})
    {'time_step_limit': [0.0, inf]}
    """
    if isinstance(settings, dict):
        if settings.keys() == {"__float__"}:
            return float(settings["__float__"])
        return {name: _with_infinities(value) for name, value in settings.items()}
    return (
        [_with_infinities(value) for value in settings] if isinstance(settings, list) else settings
    )


def blocks_of(model: Any) -> nn.Module:
    """The part of a model between its embeddings and its head; the embeddings are replaced by the
    identity.
    """
    blocks: Any = model.base_model
    blocks.set_input_embeddings(nn.Identity())
    return blocks


@contextmanager
def inputs_seen(model: nn.Module, name: str | None) -> Iterator[list[Tensor]]:
    """Collect the inputs of a module, call by call; an empty list if `name` is None."""
    inputs: list[Tensor] = []
    if name is None:
        yield inputs
        return

    # A hook, because the code of transformers does not return these inputs.
    module = model.get_submodule(name)
    hook = module.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    try:
        yield inputs
    finally:
        hook.remove()


class HuggingFace(Backbone, JoinsRows):
    """The blocks of an imported model; its embeddings and softmax belong to the vocabulary.

    Windows are read whole, without padding, mask or cache, so each is exactly causal. Or they are
    read in pieces, with the cache of transformers as state. Weights are undefined until loaded.
    """

    def __init__(self, config: HuggingFaceConfig) -> None:
        super().__init__()
        self.prefix = config.prefix
        self.last_ffn = config.last_ffn
        self.input_scale = config.input_scale
        self.model = blocks_of(model_of_settings(config.architecture, CAUSAL))
        self._arguments = signature(self.model.forward).parameters

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, L, d] -> hidden [B, L, d] (f), ffn_input [B, L, d] (g); the state if one
        was given.
        """
        embedded = inputs.embedded if self.input_scale == 1 else self.input_scale * inputs.embedded
        with inputs_seen(self.model, self.last_ffn) as ffn_inputs:
            if inputs.state is None:
                hidden: Tensor = self.model(
                    inputs_embeds=embedded, use_cache=False, return_dict=True
                )[0]
                state = None
            else:
                hidden, state = self._continue_windows(embedded, inputs.state)
        rows = len(embedded)
        # Some modules see all rows as one.
        parts = [part.reshape(rows, -1, hidden.shape[2]) for part in ffn_inputs]
        return Encoding(hidden, torch.cat(parts, 1) if parts else None, state)

    def _continue_windows(
        self, embedded: Tensor, state: Mapping[str, Tensor]
    ) -> tuple[Tensor, WindowCache]:
        """Hidden states [B, n, d] of the next inputs of windows, and the state after them."""
        if not state:
            return self._read_piece(embedded, None)
        cache = _window_cache(state)
        if not cache.is_recurrent:
            return self._read_piece(embedded, cache)
        # Recurrent blocks of transformers begin anew where they get several inputs.
        hidden = []
        for piece in embedded.split(1, 1):
            output, cache = self._read_piece(piece, cache)
            hidden.append(output)
        return torch.cat(hidden, 1), cache

    def _read_piece(
        self, embedded: Tensor, state: WindowCache | None
    ) -> tuple[Tensor, WindowCache]:
        """Read inputs [B, n, d] after those of the state; None: windows begin."""
        num_rows, num_positions = embedded.shape[:2]
        lengths: Sequence[int] = (0,) * num_rows
        arguments: dict[str, Any] = {}
        if state is not None:
            # models name their cache differently
            name = next(name for name in NAMES if name in self._arguments)
            arguments = {name: state.copied()} | self._of_padding(state, embedded)
            lengths = state.lengths

        output = self.model(inputs_embeds=embedded, use_cache=True, return_dict=True, **arguments)
        cache = next(output[name] for name in NAMES if output.get(name) is not None)
        after = [length + num_positions for length in lengths]
        return output[0], WindowCache(cache, after)

    def _of_padding(self, state: WindowCache, embedded: Tensor) -> dict[str, Tensor]:
        """Arguments that tell a model which inputs of its cache are padding; none if all count."""
        if not (state.is_padded and state.has_keys):
            return {}
        of_rows = {"attention_mask": state.mask, "position_ids": state.positions}
        number = embedded.shape[1]
        device = embedded.device
        return {
            name: values(number, device)
            for name, values in of_rows.items()
            if name in self._arguments
        }

    def can_join(self, state: State) -> bool:
        return _window_cache(state).can_join

    def join(self, states: Sequence[State]) -> State:
        return join([_window_cache(state) for state in states])

    def rows(self, state: State, rows: Sequence[int]) -> State:
        return _window_cache(state).rows(rows)

    def without_last(self, state: State, number: int) -> State:
        return _window_cache(state).without_last(number)


def _window_cache(state: State) -> WindowCache:
    assert isinstance(state, WindowCache), "a window that has been begun"
    return state


LAYER = ("keys", "values", "source_keys", "source_values")
"""Tensors in the cache of a decoder layer, [B, heads, length, d_head] each."""


class HuggingFaceEncoderDecoder(Backbone, ReadsSource):
    """The encoder and the decoder of an imported model; its embeddings and softmax belong to the
    vocabulary.

    The encoder reads a source once. The state then has its outputs, and the keys and values of
    every decoder layer. Targets need no mask, because their padding is at the end. Weights are
    undefined until loaded.
    """

    def __init__(self, config: HuggingFaceEncoderDecoderConfig) -> None:
        super().__init__()
        self.prompt = config.prompt
        self.source_prefix = config.source_prefix
        self.last_ffn = config.last_ffn
        self.input_scale = config.input_scale
        self.max_positions = config.max_positions
        self.model: Any = sides_of(model_of_settings(config.architecture, TRANSLATES))
        decoder: Any = self.model.decoder
        names = signature(decoder.forward).parameters
        self._cache = (
            "cache" if "cache" in names else "past_key_values"
        )  # renamed in transformers 5.23

    def begin(self, source: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """Outputs of the encoder, [B, S, d], and their mask, int64 [B, S]: 1 for positions that
        count.
        """
        self._require_places(source)
        counted = (
            source.new_ones(source.shape[:2], dtype=torch.long) if mask is None else mask.long()
        )
        encoded = self.model.encoder(
            inputs_embeds=self.input_scale * source, attention_mask=counted, return_dict=True
        )
        return {"source": encoded.last_hidden_state, "mask": counted}

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, L, d] -> hidden [B, L, d] (f), ffn_input [B, L, d] (g), and the state if
        one was given.
        """
        state = self.begun(inputs)
        self._require_places(inputs.embedded)
        with inputs_seen(self.model.decoder, self.last_ffn) as ffn_inputs:
            read = self.model.decoder(
                inputs_embeds=self.input_scale * inputs.embedded,
                encoder_hidden_states=state["source"],
                encoder_attention_mask=state["mask"],
                use_cache=inputs.state is not None,
                return_dict=True,
                **{self._cache: _cache_of(state)},
            )
        hidden: Tensor = read.last_hidden_state
        ffn_input = ffn_inputs[0].reshape(hidden.shape) if ffn_inputs else None
        if inputs.state is None:
            return Encoding(hidden, ffn_input, None)
        source = {"source": state["source"], "mask": state["mask"]}
        return Encoding(hidden, ffn_input, source | _layers(read[self._cache]))

    def _require_places(self, embedded: Tensor) -> None:
        """Check the length of sentences.

        Raises: UsageError for a sentence that is longer than the model has positions.
        """
        if self.max_positions is not None and embedded.shape[1] > self.max_positions:
            raise UsageError(
                f"A sentence has {embedded.shape[1]:,} tokens, and the model reads {self.max_positions:,}: cut it."
            )


def sides_of(model: Any) -> nn.ModuleDict:
    """The encoder and the decoder of a model; their embeddings are replaced by the identity."""
    sides = {"encoder": model.base_model.encoder, "decoder": model.base_model.decoder}
    for side in sides.values():
        side.set_input_embeddings(nn.Identity())
    return nn.ModuleDict(sides)


def _layers(cache: Any) -> dict[str, Tensor]:
    """Keys and values of every layer, by name."""
    past_layers = cache.self_attention_cache.layers
    source_layers = cache.cross_attention_cache.layers
    tensors = {}
    for number, (past, source) in enumerate(zip(past_layers, source_layers, strict=True)):
        parts = (past.keys, past.values, source.keys, source.values)
        for name, tensor in zip(LAYER, parts, strict=True):
            tensors[f"layer{number}.{name}"] = tensor
    return tensors


def _cache_of(state: Mapping[str, Tensor]) -> Any:
    """Rebuild the cache of transformers from the tensors of `_layers`; None: no target was read
    yet.
    """
    from transformers import EncoderDecoderCache

    layers = []
    # two tensors of the state are no layer's: the source and its mask
    for number in range((len(state) - 2) // len(LAYER)):
        layers.append(tuple(state[f"layer{number}.{name}"] for name in LAYER))
    return EncoderDecoderCache(layers) if layers else None


class TextEncoder(Backbone, EmbedsTexts):
    """The blocks of an imported encoder; its special tokens are put around each text.

    A window gives one pooled vector, which has not seen the next token. Windows are read without
    padding and mask, documents with both. Weights are undefined until loaded.
    """

    def __init__(self, config: TextEncoderConfig) -> None:
        super().__init__()
        self.input_scale = config.input_scale
        self.before = nn.Parameter(torch.empty(len(config.before), config.width))
        self.after = nn.Parameter(torch.empty(len(config.after), config.width))
        self.model = encoder_blocks(model_of_settings(config.architecture, ENCODES))
        self.vector = SentenceVector(config)

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, L, d] -> hidden [B, 1, k], the vector of all inputs with [CLS] and [SEP].

        For documents, which have a mask, hidden is [B, L, d].
        """
        embedded = inputs.embedded
        num_rows, length = embedded.shape[:2]
        before = self.before.expand(num_rows, -1, -1)
        if inputs.mask is not None:
            # A model that puts nothing before a text reads `<eos>` there, so that inputs have rows.
            first = before if len(self.before) else embedded[:, :1]
            hidden, _ = self._documents(first, embedded[:, 1:], inputs.mask[:, 1:])
            # of the tokens before a text, only the last counts as an input
            start = first.shape[1] - 1
            return Encoding(hidden[:, start : start + length], None)

        after = self.after.expand(num_rows, -1, -1)
        text = torch.cat((before, embedded, after), 1)
        hidden = self._hidden(text, None)
        all_positions = hidden.new_ones(hidden.shape[:2], dtype=torch.bool)
        vector = self.vector(hidden, all_positions)
        return Encoding(vector[:, None], None)

    def embed(self, inputs: Inputs) -> Tensor:
        """Vectors of documents, [B, k], without `<eos>`, which is no part of a text."""
        assert inputs.mask is not None, "documents have a mask"
        before = self.before.expand(len(inputs.embedded), -1, -1)
        hidden, counted = self._documents(before, inputs.embedded[:, 1:], inputs.mask[:, 1:])
        vectors: Tensor = self.vector(hidden, counted)
        return vectors

    def _documents(self, first: Tensor, texts: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states of texts between their special tokens, [B, F + L + S, d].

        Args:
            first: embeddings before each text, [B, F, d].
            texts: embeddings of texts, [B, L, d], padded at the end.
            mask: positions of texts that count, bool [B, L].
        Returns: hidden states, and the positions that count. [SEP] follows the last input that
            counts, so padding is behind it.
        """
        num_rows, _, width = texts.shape
        num_after = len(self.after)
        room = texts.new_zeros(num_rows, num_after, width)
        inputs = torch.cat((first, texts, room), 1)

        # the last special tokens stand where each text ends, not where the longest does
        stops = first.shape[1] + mask.sum(1)
        offsets = torch.arange(num_after, device=stops.device)
        positions = stops[:, None] + offsets  # [B, S]
        index = positions[..., None].expand(room.shape)
        after = self.after.expand(num_rows, -1, -1)
        inputs = inputs.scatter(1, index, after)

        ends = stops + num_after
        all_positions = torch.arange(inputs.shape[1], device=ends.device)
        is_counted = all_positions < ends[:, None]
        return self._hidden(inputs, is_counted), is_counted

    def _hidden(self, embedded: Tensor, counted: Tensor | None) -> Tensor:
        """Hidden states [B, L, d] of embeddings [B, L, d]; `counted`: not padding, None: all."""
        scaled = embedded if self.input_scale == 1 else self.input_scale * embedded
        mask = None if counted is None else counted.long()
        hidden: Tensor = self.model(inputs_embeds=scaled, attention_mask=mask, return_dict=True)[0]
        return hidden


def encoder_blocks(model: nn.Module) -> nn.Module:
    """The blocks of an encoder, without its embeddings, and without the layer above [CLS], which
    keys do not use.
    """
    blocks = blocks_of(model)
    if getattr(blocks, "pooler", None) is not None:
        blocks.pooler = None  # type: ignore[assignment]
    return blocks
