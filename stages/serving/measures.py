"""Figures of a running server, in the format of Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Measures:
    """Counters of requests and tokens; no figure holds a word of a text."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "memlm_requests", "Answered requests.", ["route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "memlm_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["route"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self.first_token = Histogram(
            "memlm_first_piece_seconds",
            "Time from a request to its first piece of text.",
            buckets=SECONDS,
            registry=self._registry,
        )
        self.prompt_tokens = Counter(
            "memlm_prompt_tokens", "Tokens of prompts.", ["memory"], registry=self._registry
        )
        self.new_tokens = Counter(
            "memlm_new_tokens", "Tokens that were written.", ["memory"], registry=self._registry
        )
        self.cancelled = Counter(
            "memlm_cancelled", "Requests whose client went away.", registry=self._registry
        )

    def watch(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """Show a value as it is when figures are asked for."""
        Gauge(name, meaning, registry=self._registry).set_function(value)

    def text(self) -> bytes:
        """All figures."""
        return generate_latest(self._registry)
