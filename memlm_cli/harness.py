"""memlm's models, memories included, for EleutherAI's lm-evaluation-harness (extra `harness`).

    python -m memlm_cli.harness run --model memlm --model_args ref=index/x,report=report/y \\
        --tasks lambada_openai

registers `memlm` and starts the harness; all its other options work as usual.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from memlm_cli.console import say
from memlm_cli.packages import installation
from stages.errors import MemlmError, UsageError, did_you_mean
from stages.inspection.settings import ReadSettings

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
except ModuleNotFoundError as error:
    if __name__ != "__main__" or error.name != "lm_eval":
        raise
    say(f"memlm_cli.harness: lm_eval is not installed: {installation('lm_eval')}")
    sys.exit(UsageError.exit_code)

if TYPE_CHECKING:
    from stages.generation.continuations import ContinuationScorer

OF_REPORT = "report"
"""Default: the memories of the report. None, the harness's value for `memory=none`, is the model
alone.
"""
UNASKED_DEVICE = "cuda:0"
"""The harness's default device, even on machines without a GPU."""
MOST_TOKENS = 256
"""Number of tokens to write if a task gives none."""
WINDOWS = ("evaluate", "hf")
"""Windows of rolling requests: those of `memlm evaluate`, or those of the harness's own `hf`."""


@register_model("memlm")
class MemlmLM(TemplateLM):
    """A model with the memories of a report; every request begins a fresh stream, so a cache sees
    it alone.
    """

    def __init__(
        self,
        ref: str,
        report: str | None = None,
        memory: str | Sequence[str] | None = OF_REPORT,
        store: str | None = None,
        device: str | None = None,
        seed: int = 0,
        windows: str = "evaluate",
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        **settings: Any,
    ) -> None:
        """Args: those of `memlm inspect`, and `seed` for tasks that sample. Requests are read one
        at a time.

        `windows`: how rolling requests are cut, one of `WINDOWS`.

        Raises: UsageError or ArtifactError for arguments that do not fit each other.
        """
        from memlm_cli.notebook import open as open_store

        super().__init__()
        argument_names = ("ref", "store", "seed", "windows", *ReadSettings.model_fields)
        for name in settings:
            if name not in argument_names:
                raise UsageError(
                    f"--model_args has no {name!r}; {did_you_mean(name, argument_names)}"
                )
        if str(batch_size) != "1" or max_batch_size is not None:
            raise UsageError(
                "Requests are read one at a time: leave --batch_size and --max_batch_size out."
            )
        readings = None if memory == OF_REPORT else memory or "none"
        self._reader = open_store(store).read(
            ref, report=report, memory=readings, device=_device(device), **settings
        )
        self._seed = seed
        self._windows = windows
        self._check_windows(settings.get("stride"))
        if self._reader.loaded.text.eos_is_newline:
            raise UsageError(
                f"{ref} reads words of lines: its <eos> is the end of a line, which no request of the harness has, so "
                "figures would be wrong. Use a model whose tokens are of another tokenizer (tokenize --tokenizer bpe)."
            )

    @cached_property
    def _continuations(self) -> "ContinuationScorer":
        """Scores of continuations, which share the context of their question."""
        from stages.generation.continuations import ContinuationScorer

        return ContinuationScorer(self._reader.loaded)

    @property
    def eot_token_id(self) -> int:
        return self._reader.loaded.text.eos

    @property
    def tokenizer_name(self) -> str:
        """Key of requests in the harness's cache (`--cache_requests`)."""
        return self._reader.loaded.read["tokens"].reference.replace("/", "-")

    def get_model_info(self) -> dict[str, Any]:
        """Information for the harness's results besides its own settings."""
        read = {role: artifact.reference for role, artifact in self._reader.loaded.read.items()}
        return {"memlm": {"read": read, "memories": self._reader.loaded.memories}}

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        return self._reader.loaded.text.ids(string)

    def loglikelihood(
        self, requests: list[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Log-probabilities of continuations behind contexts, either of which may be empty.

        An empty continuation is certain: 0 nats, and the likeliest.
        """
        encoded = [(request.args, *self._encode_request(*request.args)) for request in requests]
        return self._loglikelihood_tokens(encoded, disable_tqdm)

    def _encode_request(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Token ids of a context and of its continuation, which is cut as the harness cuts it.

        The harness cuts the ids of the whole text where those of the context end. A continuation
        that melts into the last token of its context has no ids then: its own are scored.
        """
        if context:
            context_ids, ids = self._encode_pair(context, continuation)
        else:
            # Every stream begins with `<eos>` in any case.
            context_ids, ids = [], self.tok_encode(continuation)
            if ids[:1] == [self.eot_token_id]:
                ids = ids[1:]
        if not ids and continuation:
            ids = self.tok_encode(continuation)
        return context_ids, ids

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **_: Any,
    ) -> list[tuple[float, bool]]:
        answers = []
        for pair, context, continuation in tqdm(
            requests, desc="memlm: loglikelihood", disable=disable_tqdm
        ):
            log_p, best = self._continuations.score(context, continuation)
            answers.append((float(log_p.sum()), bool(best.all())))
            self.cache_hook.add_partial("loglikelihood", pair, answers[-1])
        return answers

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        from stages.inspection.reading import text_log_prob

        def scored(text: str) -> float:
            ids = self.tok_encode(text)
            if self._windows == "hf":
                return self._log_prob_in_full_windows(ids)
            return text_log_prob(self._reader.loaded, ids)

        return self._answered(requests, "loglikelihood_rolling", disable_tqdm, scored)

    def _check_windows(self, stride: int | None) -> None:
        """Check that the model reads the windows that are named. Raises: UsageError."""
        if self._windows not in WINDOWS:
            raise UsageError(f"windows={self._windows} is neither {' nor '.join(WINDOWS)}.")
        if self._windows == "evaluate":
            return
        if self._reader.loaded.range_reader.carries_state:
            raise UsageError(
                "windows=hf: this model carries its state through a text and reads no windows; "
                "leave it out."
            )
        if stride is not None:
            raise UsageError(
                "windows=hf: these windows begin `context` tokens apart; leave stride out."
            )

    def _log_prob_in_full_windows(self, ids: list[int]) -> float:
        """Summed log-probability of a document in the windows of the harness's `hf`, in nats.

        Each window is a fresh stream of `context` inputs. The last one reaches back to be full, and
        scores only the tokens that are left.
        """
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        from stages.inspection.reading import continuation_scores

        length = self._reader.loaded.range_reader.split_reader.windows.context
        windows = get_rolling_token_windows(ids, self.eot_token_id, length, context_len=1)
        total = 0.0
        for number, window in enumerate(windows):
            context, targets = make_disjoint_window(window)
            # The first window holds no context but `<eos>`, with which every stream begins here.
            context = context if number else []
            log_p, _ = continuation_scores(self._reader.loaded, context, targets)
            total += float(log_p.sum())
        return total

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Texts behind prompts; those with the same settings are written together."""
        groups: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            groups.setdefault(repr(request.args[1]), []).append(place)
        answers = [""] * len(requests)
        with tqdm(total=len(requests), desc="memlm: generate_until", disable=disable_tqdm) as bar:
            for places in groups.values():
                prompts = [requests[place].args[0] for place in places]
                options = self._options(requests[places[0]].args[1])
                for number, text in self._reader.texts(prompts, **options):
                    request = requests[places[number]]
                    answers[places[number]] = text
                    self.cache_hook.add_partial("generate_until", request.args, text)
                    bar.update()
        return answers

    def _answered(
        self, requests: list[Any], what: str, hidden: bool, answer: Callable[..., Any]
    ) -> list[Any]:
        """Answer requests one by one; the harness's cache keeps each."""
        answers = []
        for request in tqdm(requests, desc=f"memlm: {what}", disable=hidden):
            answers.append(answer(*request.args))
            self.cache_hook.add_partial(what, request.args, answers[-1])
        return answers

    def _options(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Options of `memlm generate` for those of a task; the likeliest token is the default."""
        from lm_eval.models.utils import normalize_gen_kwargs

        normalized = dict(normalize_gen_kwargs(arguments, MOST_TOKENS))
        options = {
            "max_tokens": normalized["max_gen_toks"],
            "temperature": float(normalized.get("temperature", 0.0)),
            "seed": self._seed,
            "stop": tuple(end for end in normalized["until"] if end) or None,
            "stop_at_eos": True,
        }
        if options["temperature"]:
            options["top_k"] = normalized.get("top_k") or None
            options["top_p"] = normalized.get("top_p")
        return options


def _device(name: str | None) -> str:
    """memlm's device for the harness's `--device`. Raises: UsageError for a GPU other than the
    first.
    """
    if name == UNASKED_DEVICE:
        return "auto"
    kind, _, index = (name or "auto").partition(":")
    if index not in ("", "0"):
        raise UsageError(
            f"--device {name}: memlm computes on the first GPU; name it by CUDA_VISIBLE_DEVICES={index}."
        )
    return kind


def main() -> int:
    """The harness's own command line; memlm's errors end it with their exit codes."""
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except MemlmError as error:
        say(f"memlm_cli.harness: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
