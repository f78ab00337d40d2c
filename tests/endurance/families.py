"""Import a tiny model of every family that the installed transformers knows.

    python -m tests.endurance.families                      causal models, translators, masked models
    python -m tests.endurance.families --all                all others as well: vision, audio, parts
    python -m tests.endurance.families llama bart xlnet     these alone

`import-model` ends with 0, or with 3 and a sentence; any other end fails. A causal model that comes
in has the log-probabilities of transformers in windows longer than its window of attention, and the
same buffers that no file holds. Every family is read in a process of its own.
"""

import argparse
import io
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import nn

from memlm_cli.app import main as memlm
from stages.models.language_model import LanguageModel
from stages.models.weights import load_model
from stages.pretrained.checkpoint import computed_buffers
from stages.pretrained.damage import quiet, setting
from tests.stages.pretrained.tiny import V, tiny_tokenizer

CAUSAL, TRANSLATOR, MASKED, ANY = (
    "AutoModelForCausalLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForMaskedLM",
    "AutoModel",
)
SIZES = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim"), 16),
    **dict.fromkeys(("embedding_size", "word_embed_proj_dim", "projection_dim"), 16),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "hidden_dim", "d_inner", "d_ff"), 24),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size"), 24),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("attention_heads", "num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "d_head", "d_kv"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"), 40),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk"), 2),
    **dict.fromkeys(("sliding_window", "attention_window_size", "window_size"), 8),
    **dict.fromkeys(("final_logit_softcapping", "attn_logit_softcapping"), 2.0),
    **{"vocab_size": V, "decoder_vocab_size": V, "decoder_start_token_id": 1},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 0},
}
"""Values of settings where a family has them."""
LAYERS = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    *("encoder_layers", "decoder_layers", "num_decoder_layers", "num_encoder_layers"),
)
ORIGIN = ("model_type", "transformers_version", "architectures", "dtype", "torch_dtype")
"""Settings that are no arguments of a class of settings."""
LANGUAGES = ("deu_Latn", "eng_Latn")
LABELS = ("id2label", "label2id")
LARGEST = 30_000_000
"""Weights of a model above which it is not built: some families have sizes under other names."""
SECONDS = 180
"""Longest time of a family on a processor, which a busy machine does not use up."""
WAITING = 20
"""Times as long a family may wait besides."""
TOLERANCE = 1e-3
"""Largest difference of a log-probability, in nats, which float32 explains."""
GOOD = ("imported", "refused")


class Outcome(NamedTuple):
    """How a family ended."""

    family: str
    kind: str
    verdict: str
    """Imported, refused, or what is wrong."""
    message: str


def families(everything: bool) -> list[tuple[str, str]]:
    """Families with the auto classes that are tried: several decode, translate and fill in."""
    from transformers.models.auto import modeling_auto

    kinds = {
        CAUSAL: modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        TRANSLATOR: modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        MASKED: modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    }
    tried = [(family, kind) for kind, names in kinds.items() for family in sorted(names)]
    if everything:
        scoring = {family for family, _ in tried}
        others = sorted(modeling_auto.MODEL_MAPPING_NAMES.keys() - scoring)
        tried += [(family, ANY) for family in others]
    return tried


def reduced(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a tiny model, from those of a usual one; settings of its parts likewise."""
    small = dict[str, Any]()
    # Keys of some parts are numbers: names of classes by their labels.
    settings = {str(name): value for name, value in settings.items() if name not in LABELS}
    lists = [value for name, value in settings.items() if name.endswith("layer_types") and value]
    # One layer of each type, so that windows of attention and recurrences are all there.
    types = list(dict.fromkeys(lists[0])) if lists else []
    layers = max(2, len(types))
    types = (types * 2)[:layers]
    for name, value in settings.items():
        if name in ORIGIN:
            continue
        if name.endswith("layer_types") and value:
            small[name] = types
        elif name in LAYERS and isinstance(value, int):
            small[name] = layers
        elif name in SIZES and value is not None:
            small[name] = SIZES[name]
        elif isinstance(value, dict):
            small[name] = reduced(value)
        else:
            small[name] = value
    return small


def variants(family: str) -> Iterator[Any]:
    """Settings of transformers for a family, smallest first; a class may refuse any of them."""
    from transformers import AutoConfig

    try:
        usual = AutoConfig.for_model(family)
    except Exception:  # some classes refuse their own defaults
        return
    begins = {"decoder_start_token_id": 1} if usual.is_encoder_decoder else {}
    by_name = {name: value for name, value in SIZES.items() if setting(usual, name) is not None}
    by_name |= {name: 2 for name in LAYERS if setting(usual, name) is not None}
    # A class that checks one setting by another takes only those that it has by these names.
    attempts = [reduced(usual.to_dict()) | begins, by_name, {}]
    for settings in attempts:
        try:
            yield AutoConfig.for_model(family, **settings)
        except Exception:  # a class may raise anything for settings that do not fit
            continue


def save_model(folder: Path, family: str, kind: str) -> str:
    """Write a tiny model; settings alone, with one weight, where transformers builds none.

    Returns: why it was not built, for people; empty if it was.
    """
    import transformers

    reason = ""
    settings = None
    for settings in variants(family):
        try:
            auto = getattr(transformers, kind)
            with torch.device("meta"):
                weights = sum(weight.numel() for weight in auto.from_config(settings).parameters())
            if weights > LARGEST:
                reason = f"{weights:,} weights"
                continue
            torch.manual_seed(0)
            model = auto.from_config(settings).eval()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter), alpha=0.1)
            model.save_pretrained(folder)
            return ""
        except Exception as error:
            reason = reason or f"{type(error).__name__}: {error}".splitlines()[0]
    if settings is None:
        (folder / "config.json").write_text(json.dumps({"model_type": family}))
    else:
        settings.save_pretrained(folder)
    save_file({"weight": torch.zeros(8)}, folder / "model.safetensors", {"format": "pt"})
    return f" (settings alone: {reason[:80]})"


def write_tokens(folder: Path) -> dict[str, str]:
    """A store with tokens of a text and of pairs, made with the tokenizer of `tokenizer/`."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens(list(LANGUAGES))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="<|endoftext|>"
    )
    fast.save_pretrained(folder / "tokenizer")
    text = folder / "train.txt"
    text.write_text("the cat sat on the mat\n" * 20)
    for language in ("en", "de"):
        (folder / f"pairs.{language}").write_text(text.read_text())
    tokenizer_folder = folder / "tokenizer"
    return {
        "text": own_tokens(folder, tokenizer_folder, pairs=False),
        "pairs": own_tokens(folder, tokenizer_folder, pairs=True),
    }


def own_tokens(folder: Path, tokenizer: Path, pairs: bool) -> str:
    """Reference of tokens made with a tokenizer."""
    options = ["--store", str(folder / "store"), "--tokenizer", str(tokenizer), "--train"]
    if pairs:
        options += [str(folder / "pairs"), "--source", "en", "--target", "de"]
    else:
        options += [str(folder / "train.txt")]
    code, out, err = ended("tokenize", *options)
    assert code == 0, err
    return out.strip()


def ended(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = memlm(list(arguments))
    return code, out.getvalue(), err.getvalue()


def import_family(folder: Path, tokens: dict[str, str], family: str, kind: str) -> Outcome:
    """Save a tiny model, import it, and compare it."""
    place = folder / f"{family}-{kind}"
    place.mkdir(exist_ok=True)
    with quiet():
        built = save_model(place, family, kind)
    for file in (folder / "tokenizer").iterdir():
        (place / file.name).write_bytes(file.read_bytes())

    translates = json.loads((place / "config.json").read_text()).get("is_encoder_decoder")
    source = tokens["pairs" if translates else "text"]
    store = ["--store", str(folder / "store"), "--device", "cpu"]
    code, out, err = ended("import-model", str(place), source, *store)
    if code == 4 and "was not made with the tokenizer" in err:
        # Classes of some families read the same file as another tokenizer.
        source = own_tokens(folder, place, translates)
        code, out, err = ended("import-model", str(place), source, *store)
    if code == 2 and "--source-language" in err:
        names = ("--source-language", LANGUAGES[0], "--target-language", LANGUAGES[1])
        code, out, err = ended("import-model", str(place), source, *store, *names)
    lines = [line for line in err.strip().splitlines() if line.startswith("memlm")] or [err]
    message = lines[-1].replace(str(place), "FOLDER") + built
    if code == 3 and "This is a bug" not in err and "cannot be read: " + str(place) not in err:
        return Outcome(family, kind, "refused", message)
    if code != 0:
        return Outcome(family, kind, f"code {code}", message)
    if kind != CAUSAL:
        return Outcome(family, kind, "imported", out.strip())

    model = load_model(folder / "store" / out.strip(), "cpu")
    if model.config.backbone != "huggingface":
        return Outcome(family, kind, "imported", f"as {model.config.backbone}")
    with quiet():
        difference = differences(place, model)
    return Outcome(family, kind, "differs" if difference else "imported", difference or out.strip())


@torch.no_grad()
def differences(place: Path, model: LanguageModel) -> str:
    """Differences of a causal model from transformers', for people; empty if there are none."""
    import transformers

    theirs = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).eval()
    blocks = model.backbone.model
    assert isinstance(blocks, nn.Module)
    expected = computed_buffers(theirs.base_model)
    for name, buffer in computed_buffers(blocks).items():
        if name not in expected or not torch.equal(buffer, expected[name]):
            return f"buffer {name}"

    longest = model.config.reads.longest_context or 40
    tokens = torch.randint(V, (2, min(longest, 40)), generator=torch.Generator().manual_seed(1))
    scores = theirs(tokens).logits.log_softmax(-1).flatten(0, 1)
    log_probs = model.log_probs(model.encode(tokens).hidden.flatten(0, 1))
    largest = float((log_probs - scores).abs().max())
    return "" if largest < TOLERANCE else f"log-probabilities by {largest:.2g} nats"


def _child(answers: Any, *arguments: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, resource.RLIM_INFINITY))
    torch.set_num_threads(1)
    try:
        answers.put(import_family(*arguments))
    except BaseException as error:
        family, kind = arguments[2:]
        answers.put(Outcome(family, kind, "raised", f"{type(error).__name__}: {error}"[:300]))


def sweep(names: Sequence[tuple[str, str]]) -> Iterator[Outcome]:
    """Outcomes of families, each in a process of its own, one after another."""
    import transformers  # noqa: F401  imported once, for all forks

    torch.set_num_threads(1)
    forks = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="memlm-families-") as folder:
        tokens = write_tokens(Path(folder))
        # Once in this process, so that no fork imports these modules again.
        import_family(Path(folder), tokens, "gpt2", CAUSAL)
        for family, kind in names:
            answers = forks.SimpleQueue()
            child = forks.Process(
                target=_child, args=(answers, Path(folder), tokens, family, kind), daemon=True
            )
            child.start()
            child.join(WAITING * SECONDS)
            if child.is_alive():
                child.kill()
                child.join()
                yield Outcome(family, kind, "no end", f"within {WAITING * SECONDS} s")
            elif child.exitcode == -signal.SIGXCPU:
                yield Outcome(family, kind, "no end", f"within {SECONDS} s of a processor")
            elif answers.empty():
                yield Outcome(family, kind, "died", f"exit code {child.exitcode}")
            else:
                yield answers.get()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="tests.endurance.families")
    parser.add_argument("family", nargs="*")
    parser.add_argument("--all", action="store_true", dest="everything")
    options = parser.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    names = families(options.everything or bool(options.family))
    if options.family:
        names = [(family, kind) for family, kind in names if family in options.family]

    counts = dict[str, int]()
    begun = time.monotonic()
    for outcome in sweep(names):
        counts[outcome.verdict] = counts.get(outcome.verdict, 0) + 1
        kind = outcome.kind.removeprefix("AutoModel") or "Any"
        print(f"{outcome.family:30} {kind:14} {outcome.verdict:9} {outcome.message}", flush=True)
    wrong = sum(count for verdict, count in counts.items() if verdict not in GOOD)
    print(f"{counts}, {wrong} wrong, {time.monotonic() - begun:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
