"""Tiny models of transformers with random weights, saved as people save theirs."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from stages.models.language_model import LanguageModel
from stages.models.weights import load_model, save_weights
from stages.pretrained.location import Location, locate
from stages.pretrained.model import Imported, describe, read_pretrained

V, D, LAYERS = 320, 16, 2
TEXT = [
    "The cat sat on the mat.\n\nThe dog sat.\n",
    "  def f(x):\n\treturn x\n\n\n",
    "Grüße aus Köln, 你好\n",
]
_LLAMA = {
    "hidden_size": D,
    "intermediate_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
}
_GROUPED = {**_LLAMA, "num_key_value_heads": 1, "max_position_embeddings": 40}
_HALVES = {**_LLAMA, "num_key_value_heads": 2, "max_position_embeddings": 40}
_EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": D, "n_layer": LAYERS, "n_head": 2, "n_positions": 40},
    "llama": {**_GROUPED, "tie_word_embeddings": True},
    "mistral": {**_GROUPED, "sliding_window": 8},
    "mixtral": {**_GROUPED, **_EXPERTS},
    "qwen2": _HALVES,
    "qwen3": {**_HALVES, "head_dim": 8},
    "qwen3_moe": {
        **_GROUPED,
        "head_dim": 8,
        "num_experts": 3,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 12,
    },
    "gpt_neox": {**_LLAMA, "max_position_embeddings": 40},
    "opt": {
        **{"hidden_size": D, "word_embed_proj_dim": 8, "ffn_dim": 24, "num_hidden_layers": LAYERS},
        **{"num_attention_heads": 2, "max_position_embeddings": 40, "do_layer_norm_before": True},
    },
    "bloom": {"hidden_size": D, "n_layer": LAYERS, "n_head": 2},
    "gemma": {**_GROUPED, "head_dim": 8},
    "gemma2": {
        **{**_GROUPED, "head_dim": 8},
        **{"final_logit_softcapping": 2.0, "query_pre_attn_scalar": 8, "sliding_window": 8},
    },
    "gemma3_text": {**_GROUPED, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8},
    "recurrent_gemma": {
        **{
            **_LLAMA,
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "head_dim": 8,
        },  # the third has the attention
        **{"lru_width": D, "attention_window_size": 8},
    },
    "phi": {**_HALVES, "partial_rotary_factor": 0.5},
    "phi3": {**_HALVES, "pad_token_id": 0, "original_max_position_embeddings": 40},
    "gptj": {"n_embd": D, "n_layer": LAYERS, "n_head": 2, "n_positions": 40, "rotary_dim": 4},
    "gpt_neo": {
        **{"hidden_size": D, "num_layers": LAYERS, "num_heads": 2, "max_position_embeddings": 40},
        **{"attention_types": [[["global", "local"], 1]], "window_size": 8},
    },
    "gpt_bigcode": {"n_embd": D, "n_layer": LAYERS, "n_head": 2, "n_positions": 40},
    "gpt_oss": {**_GROUPED, **_EXPERTS, "head_dim": 8, "sliding_window": 8},
    "starcoder2": {**_GROUPED, "sliding_window": 8},
    "stablelm": _HALVES,
    "smollm3": {**_GROUPED, "pad_token_id": 0},
    "falcon": {
        **{
            "hidden_size": D,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 2,
            "max_position_embeddings": 40,
        }
    },
    "mpt": {"d_model": D, "n_layers": LAYERS, "n_heads": 2, "max_seq_len": 40},
    "xglm": {
        "d_model": D,
        "ffn_dim": 24,
        "num_layers": LAYERS,
        "attention_heads": 2,
        "max_position_embeddings": 40,
    },
    "granite": {**_GROUPED, "logits_scaling": 4.0},
    "cohere": {**_GROUPED, "logit_scale": 0.25},
    "glm4": {**_GROUPED, "head_dim": 8, "pad_token_id": 0},
    "olmo2": _HALVES,
    "olmo3": {**_HALVES, "sliding_window": 8},
    "lfm2": {
        **_GROUPED,
        "full_attn_idxs": [1],
        "block_auto_adjust_ff_dim": False,
        "block_ff_dim": 24,
    },
    "jamba": {
        **{**_GROUPED, "mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False},
        **{"attn_layer_period": 2, "attn_layer_offset": 1},
        **{"expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 2},
    },
    "mamba": {"hidden_size": D, "num_hidden_layers": LAYERS, "state_size": 4},
    "mamba2": {
        **{"hidden_size": D, "num_hidden_layers": LAYERS, "state_size": 4},
        **{"head_dim": 8, "num_heads": 4, "n_groups": 1, "chunk_size": 8},
    },
    "rwkv": {
        **{"hidden_size": D, "attention_hidden_size": D, "num_hidden_layers": LAYERS},
        **{"intermediate_size": 24, "context_length": 40},
    },
}
"""Settings of one tiny model of each kind."""


def tiny_model(family: str, **settings: Any) -> Any:
    """A causal model with random weights."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(
        family, **{"vocab_size": V, **FAMILIES.get(family, {}), **settings}
    )
    return tiny_model_of(config, "AutoModelForCausalLM")


def tiny_model_of(settings: Any, kind: str) -> Any:
    """A model of a class of transformers, whose outputs are far enough apart to tell one formula
    from another.
    """
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, kind).from_config(settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


_BERT = {
    "hidden_size": D,
    "intermediate_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {**_BERT, "max_position_embeddings": 40},
    "roberta": {**_BERT, "max_position_embeddings": 42, "pad_token_id": 1},
    "xlm-roberta": {**_BERT, "max_position_embeddings": 42, "pad_token_id": 1},
    "mpnet": {**_BERT, "max_position_embeddings": 42, "pad_token_id": 1},
    "distilbert": {
        "dim": D,
        "hidden_dim": 24,
        "n_layers": LAYERS,
        "n_heads": 2,
        "max_position_embeddings": 40,
    },
    "electra": {**_BERT, "embedding_size": D, "max_position_embeddings": 40},
    "modernbert": {**_BERT, "max_position_embeddings": 40, "pad_token_id": 0, "local_attention": 8},
    "deberta-v2": {
        **_BERT,
        "max_position_embeddings": 40,
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
    },
}
"""Settings of one tiny encoder of each kind; all read 40 tokens, those around a text among them."""


def saved_encoder(
    folder: Path, family: str = "bert", kind: str = "AutoModel", **settings: Any
) -> Any:
    """A folder with an encoder and a tokenizer that puts [CLS] and [SEP] around a text; returns the
    model.
    """
    from transformers import AutoConfig, PreTrainedTokenizerFast

    model = tiny_model_of(
        AutoConfig.for_model(family, **{"vocab_size": V, **ENCODERS[family], **settings}), kind
    )
    model.save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    around = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=around
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token="[CLS]", sep_token="[SEP]")
    fast.save_pretrained(folder)
    return model


_SIDES = {
    "encoder_layers": 3,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
}
_TRANSLATOR = {
    **_SIDES,
    "d_model": D,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 40,
}
_T5 = {
    "d_model": D,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 3,
    "num_decoder_layers": LAYERS,
    "num_heads": 2,
}
_TOKENS = {"eos_token_id": 0, "pad_token_id": 1, "bos_token_id": 1, "decoder_start_token_id": 1}
TRANSLATORS: dict[str, dict[str, Any]] = {
    "marian": {**_TRANSLATOR, "forced_eos_token_id": None},
    "m2m_100": {**_TRANSLATOR, "decoder_start_token_id": 0},
    "t5": _T5,
    "t5 v1.1": {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "bart": {**_TRANSLATOR, "forced_eos_token_id": None},
}
"""Settings of one tiny encoder-decoder of each kind."""


def tiny_translator(family: str, **settings: Any) -> Any:
    """An encoder-decoder with random weights."""
    from transformers import AutoConfig

    given = {"vocab_size": V, **_TOKENS, **TRANSLATORS[family], **settings}
    model = tiny_model_of(AutoConfig.for_model(family.split()[0], **given), "AutoModelForSeq2SeqLM")
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    return model


def saved_translator(folder: Path, family: str, **settings: Any) -> Any:
    """A folder with an encoder-decoder and its tokenizer, which knows two languages; returns the
    model.
    """
    from transformers import PreTrainedTokenizerFast

    model = tiny_translator(family, **settings)
    model.save_pretrained(folder)
    model = type(model).from_pretrained(
        folder
    )  # positions of sinusoids are not saved, and made anew without noise
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens(["deu_Latn", "__en__"])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<s>", eos_token="<|endoftext|>"
    )
    fast.save_pretrained(folder)
    return model


def tiny_tokenizer(bos: bool = False) -> Tokenizer:
    """Byte-level BPE with one token for two newlines; with `bos` it begins each text with one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=V - 10,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    return tokenizer


def saved(folder: Path, family: str, bos: bool = False, **settings: Any) -> Any:
    """A folder with a model and its tokenizer; returns the model."""
    from transformers import PreTrainedTokenizerFast

    model = tiny_model(family, **settings)
    model.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer(bos), bos_token="<s>", eos_token="<|endoftext|>"
    )
    tokenizer.save_pretrained(folder)
    return model


def saved_gguf(file: Path, bos: bool = False) -> Any:
    """A GGUF file with a Llama and its tokenizer, as llama.cpp writes them; returns the model."""
    import gguf

    model = tiny_model("llama", tie_word_embeddings=False)
    config, tokenizer = model.config, tiny_tokenizer()
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(LAYERS)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(V)
    types = sorted(tokenizer.get_vocab().items(), key=lambda type: type[1])
    padding = [f"[PAD{id}]" for id in range(len(types), V)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in types] + padding)
    normal, control, unused = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL, gguf.TokenType.UNUSED
    writer.add_token_types([control] * 2 + [normal] * (len(types) - 2) + [unused] * len(padding))
    writer.add_token_merges(
        [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    )
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_add_bos_token(bos)
    for name, weight in model.state_dict().items():
        writer.add_tensor(_gguf_name(name), _gguf_order(name, weight, config).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gguf_name(name: str) -> str:
    for theirs, ours in _GGUF_NAMES.items():
        name = name.replace(f"{theirs}.", f"{ours}.")
    return name


def _gguf_order(name: str, weight: torch.Tensor, config: Any) -> torch.Tensor:
    """llama.cpp rotates neighbouring rows of queries and keys, transformers rows half a head apart."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(
        name.split(".")[-2]
    )
    if heads is None:
        return weight
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2).contiguous()


def imported(path: Path, prefix: int | None = None, length: int = 38) -> LanguageModel:
    """The model of a folder or file, as memlm reads it."""
    location = locate(str(path))
    return stored_and_loaded(location, describe(location, prefix), length)


def stored_and_loaded(location: Location, config: Imported, length: int = 38) -> LanguageModel:
    """The model that later stages load, compared with transformers' as `import-model` does."""
    weights, require_same = read_pretrained(location, config, length)
    with TemporaryDirectory() as folder:
        save_weights(weights, Path(folder, "model.safetensors"))
        settings = {"model": config.model_dump(mode="json")}
        Path(folder, "config.json").write_text(json.dumps(settings))
        model = load_model(Path(folder), "cpu")
    require_same(model)
    return model
