"""What every probe promises; a test of a probe inherits it."""

import json
from collections.abc import Sequence
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from stages.diagnostics import PROBES
from stages.diagnostics import probe as probe_module
from stages.diagnostics.probe import Probe
from stages.encoding.encode import HiddenReader, encode
from stages.encoding.probe import Observation, ScoredBlock
from stages.examples.cutting import WindowSettings
from stages.examples.streams import Streams
from stages.models.config import BackboneConfig, parse_model
from stages.models.language_model import LanguageModel

TOKENS = 24
CONTEXT = 8


class ProbeContract:
    """Subclasses name the probe and give it opened, its model, and what reads the model's memory of
    a range.
    """

    registered_as: str

    @pytest.fixture
    def probe(self) -> Probe:
        raise NotImplementedError

    @pytest.fixture
    def model(self) -> LanguageModel:
        raise NotImplementedError

    def reader(self, start: int, stop: int) -> HiddenReader | None:
        raise NotImplementedError

    @property
    def settings(self) -> type[Probe]:
        settings: type[Probe] = PROBES.load(self.registered_as)
        return settings

    def seen(
        self,
        probe: Probe,
        model: LanguageModel,
        edges: Sequence[int],
        cuts: Sequence[int] = (),
        every: int = 1,
        precision: str = "fp32",
    ) -> list[Observation]:
        """Tokens 0 to TOKENS in ranges that end at `edges`, in blocks that end there and at `cuts`."""
        ids = np.random.default_rng(1).integers(0, model.config.vocab_size, TOKENS)
        examples = Streams(
            ids, 0, model.config.cutting(WindowSettings(CONTEXT, CONTEXT)), np.array([0, TOKENS])
        )
        found, state = [], None
        for start, stop in zip((0, *edges[:-1]), edges, strict=True):
            reader = self.reader(start, stop)
            counted = None if every == 1 else torch.arange(start, stop) % every == 0
            watch = probe.watch(model, reader, start, counted)
            for a, b in pairwise([start, *(cut for cut in cuts if start < cut < stop), stop]):
                for block in encode(model, examples.blocks(a, b), state, precision):
                    read = block.hidden if reader is None else reader.apply(model, block)
                    watch.observe(
                        ScoredBlock(model, block, read, model.log_prob(read, block.targets)[0])
                    )
                    state = block.state
            found.append(watch.observation())
        return found

    @pytest.mark.parametrize("every", [1, 3])
    def test_every_token_that_counts_has_a_number_in_each_column(self, probe, model, every):
        (seen,) = self.seen(probe, model, [TOKENS], [5, 11], every)
        assert tuple(seen.columns) == probe.columns
        assert all(
            column.shape == (len(range(0, TOKENS, every)),) for column in seen.columns.values()
        )
        assert all(
            column.dtype == torch.float32 and column.isfinite().all()
            for column in seen.columns.values()
        )
        assert seen.seconds >= 0

    @pytest.mark.parametrize(
        ("edges", "cuts"), [([TOKENS], [1, 7]), ([9, TOKENS], []), ([1, 9, TOKENS], [5, 20])]
    )
    def test_how_a_split_is_cut_does_not_matter(self, probe, model, edges, cuts):
        whole, parts = self.seen(probe, model, [TOKENS]), self.seen(probe, model, edges, cuts)
        for name in probe.columns:
            torch.testing.assert_close(
                torch.cat([part.columns[name] for part in parts]), whole[0].columns[name]
            )
        metrics = [
            probe.metrics([json.loads(json.dumps(one.record)) for one in seen])
            for seen in (whole, parts)
        ]
        assert _numbers(metrics[1]) == pytest.approx(_numbers(metrics[0]), rel=1e-5, abs=2 / TOKENS)

    def test_it_watches_a_model_that_reads_in_low_precision(self, probe, model):
        (seen,) = self.seen(probe, model, [TOKENS], precision="bf16")
        assert all(column.isfinite().all() for column in seen.columns.values())
        assert all(np.isfinite(_numbers(probe.metrics([json.loads(json.dumps(seen.record))]))))

    def test_looking_is_no_time_of_the_model(self, probe, model, monkeypatch):
        times = count(0, 1000)
        monkeypatch.setattr(probe_module, "now", lambda device: next(times))
        (seen,) = self.seen(probe, model, [TOKENS])
        assert seen.seconds >= 1000

    def test_what_it_leaves_is_json_a_line_and_charts(self, probe, model):
        records = [one.record for one in self.seen(probe, model, [9, TOKENS])]
        metrics, files = probe.metrics(records), probe.files(records)
        metrics, files, curves = json.loads(
            json.dumps([metrics, files, probe.curves(metrics, "plain")])
        )
        assert "\n" not in self.settings.summary(metrics)
        assert all(
            {"row", "over", "points"} <= set(curve) and curve["row"] == "plain" for curve in curves
        )
        report = {"split": "test", "tokens": TOKENS, "rows": [{"row": "plain", "perplexity": 3.0}]}
        own = self.registered_as.replace("_", "-")
        names = [
            c.name for c in self.settings.charts(report | {self.registered_as: metrics}, files)
        ]
        assert len(names) == len(set(names)) and all(name.startswith(f"{own}-") for name in names)
        assert self.settings.charts(report, {}) == []


def _numbers(metrics: object) -> list[float]:
    """All of JSON, in order."""
    if isinstance(metrics, dict):
        return [number for value in metrics.values() for number in _numbers(value)]
    if isinstance(metrics, list):
        return [number for value in metrics for number in _numbers(value)]
    return [float(metrics)] if isinstance(metrics, int | float) else []


def opened(probe: type[Probe], model: BackboneConfig) -> Probe | None:
    """A probe of a model with these settings; None where it has nothing to see."""
    artifact: Any = SimpleNamespace(path=Path(), config={"model": model.model_dump(mode="json")})
    return probe.open({"model": artifact}, {}, "test")


class AttentionProbeContract(ProbeContract):
    """Of a Transformer-XL with an attention that remembers."""

    kind: ClassVar[type[Probe]]
    attention: ClassVar[dict[str, Any]]
    """Its settings."""
    sizes: ClassVar[dict[str, Any]] = {"mem_length": 4}
    """Settings of the backbone beside those that all have."""

    @pytest.fixture
    def model(self) -> LanguageModel:
        torch.manual_seed(0)
        shape = {"backbone": "transformer-xl", "width": 8, "layers": 2, "heads": 2, **self.sizes}
        model = LanguageModel(
            parse_model({**shape, "attention": self.attention}).sized(11, CONTEXT)
        ).eval()
        for parameter in model.backbone.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        return model

    @pytest.fixture
    def probe(self, model: LanguageModel) -> Probe | None:
        return opened(self.kind, model.config)

    def reader(self, start: int, stop: int) -> None:
        return None
