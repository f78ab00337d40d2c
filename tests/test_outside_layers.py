"""Layers from outside the package: settings, code and one line of a registry, and every block can
have them.
"""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from stages.charts.data import Chart
from stages.config import nondefaults
from stages.diagnostics import PROBES
from stages.diagnostics.probe import LayerProbe, LayerWatch, Sums
from stages.encoding.probe import ScoredBlock
from stages.errors import UsageError
from stages.methods.method import Batch, UpdateBatch
from stages.models.config import StateArray, parse_model
from stages.models.language_model import LanguageModel
from stages.models.layers import FEED_FORWARD, STREAM_ATTENTION
from stages.models.layers.settings import AttentionConfig, StreamAttentionSettings, SublayerSettings
from stages.models.layers.sublayer import (
    Attended,
    FeedForward,
    SegmentContext,
    StreamAttention,
    StreamInputs,
)
from stages.registry import Part
from stages.training.config import TrainConfig
from stages.training.loop import plain_step
from stages.training.warnings import unlearned_memory
from tests.builders.training import V, trainer
from tests.cli.conftest import Memlm, memlm, text  # noqa: F401
from tests.stages.models.backbones.contract import BackboneContract

OWN = (
    *("--backbone", "transformer-xl", "--set", "model.attention.name=summary"),
    *("--set", "model.feed_forward.name=slots", "--set", "model.feed_forward.layers=[2]"),
)
SMALL = (
    "--steps",
    4,
    "--segment-length",
    16,
    "--batch-tokens",
    32,
    "--set",
    "model.width=8",
    "--set",
    "model.heads=2",
)


class Mean(NamedTuple):
    """Memory of a summary, [B, d]."""

    mean: Any


class SummarySettings(StreamAttentionSettings):
    """A decaying mean of the segments before."""

    name: Literal["summary"] = "summary"
    decay: float = 0.5

    def memory_spec(self, model: AttentionConfig, context: int) -> Mean:
        return Mean(StateArray((1, model.width)))


class Summary(StreamAttention[Mean]):
    """Mean of what a position sees, and W M; at a segment's end M <- decay M + its mean input."""

    def __init__(self, config: AttentionConfig, settings: SummarySettings) -> None:
        super().__init__()
        self.decay, self.out = settings.decay, nn.Linear(config.width, config.width)

    def initialize(self, blocks: int) -> None:
        nn.init.eye_(self.out.weight)

    def begin(self, x: Tensor) -> Mean:
        return Mean(x.new_zeros(len(x), x.shape[2]))

    def forward(
        self, inputs: StreamInputs, passage: SegmentContext, memory: Mean
    ) -> Attended[Mean]:
        x = inputs.normalized
        ((begin, first, stop),) = passage.spans
        seen = x[:, begin:stop].cumsum(1) / torch.arange(1, stop - begin + 1)[:, None].to(x.dtype)
        read = self.out(memory.mean)
        if passage.ends_segment:
            memory = Mean(self.decay * memory.mean + x[:, passage.cached - passage.place :].mean(1))
        # The auxiliary loss holds down what is read of M.
        hidden = seen[:, first - begin :] + read[:, None]
        return Attended(hidden, memory, 1e-3 * read.square().mean())


class RecurrentSettings(SummarySettings):
    """As a summary."""

    name: Literal["recurrent"] = "recurrent"  # type: ignore[assignment]


class SlotsSettings(SublayerSettings):
    """Pairs of a key and a value."""

    name: Literal["slots"] = "slots"
    slots: int = 6


class Slots(FeedForward):
    """softmax(x K^T) V."""

    def __init__(self, config: AttentionConfig, settings: SlotsSettings) -> None:
        super().__init__()
        self.keys, self.values = (
            nn.Parameter(torch.empty(settings.slots, config.width)) for _ in range(2)
        )

    def initialize(self, blocks: int) -> None:
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.keys.T).softmax(-1) @ self.values


class Recurrent(Summary):
    """A summary whose memory carries the gradient of later segments, too."""

    keeps_graph = True


class Last(NamedTuple):
    """The latest token of each stream, int64 [B, 1]."""

    token: Any


class EchoSettings(StreamAttentionSettings):
    """The token before."""

    name: Literal["echo"] = "echo"

    def memory_spec(self, model: AttentionConfig, context: int) -> Last:
        return Last(StateArray((1, 1), "int64"))


class Echo(StreamAttention[Last]):
    """An input, times an embedding of the token before, which is kept from passage to passage; -1:
    there was none.
    """

    def __init__(self, config: AttentionConfig, settings: EchoSettings) -> None:
        super().__init__()
        self.rows = nn.Embedding((config.vocab_size or 0) + 1, config.width)

    def initialize(self, blocks: int) -> None:
        nn.init.normal_(self.rows.weight)

    def begin(self, x: Tensor) -> Last:
        return Last(torch.full((len(x), 1), -1, device=x.device))

    def forward(
        self, inputs: StreamInputs, passage: SegmentContext, memory: Last
    ) -> Attended[Last]:
        assert passage.tokens is not None
        said = torch.cat((memory.token, passage.tokens), 1)
        return Attended(
            self.rows(said[:, :-1] + 1) * inputs.normalized[:, passage.cached :], Last(said[:, -1:])
        )


class ReadProbe(LayerProbe):
    """Shows the auxiliary losses of a summary."""

    name, settings, layer = "summary_read", SummarySettings, f"{__name__}:Summary"
    columns = ()

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        for layer, calls in watch.calls():
            watch.add(layer, loss=sum(output.auxiliary_loss for output in calls))

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        return {"loss": float(sums["loss"])}

    @classmethod
    def line(cls, block: Mapping[str, Any]) -> str:
        return f"loses {block['loss']:.3g}"

    @classmethod
    def block_charts(
        cls, blocks: Sequence[Mapping[str, Any]], reported: Mapping[str, Any], split: str
    ) -> list[Chart]:
        return []


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        STREAM_ATTENTION.targets,
        "summary",
        Part(f"{__name__}:SummarySettings", f"{__name__}:Summary"),
    )
    monkeypatch.setitem(
        STREAM_ATTENTION.targets,
        "recurrent",
        Part(f"{__name__}:RecurrentSettings", f"{__name__}:Recurrent"),
    )
    monkeypatch.setitem(
        STREAM_ATTENTION.targets, "echo", Part(f"{__name__}:EchoSettings", f"{__name__}:Echo")
    )
    monkeypatch.setitem(
        FEED_FORWARD.targets, "slots", Part(f"{__name__}:SlotsSettings", f"{__name__}:Slots")
    )


class TestBackboneOfThem(BackboneContract):
    """A backbone with such layers keeps the contract of every backbone."""

    @pytest.fixture(params=[None, (2,)])
    def blocks(self, request):
        return request.param

    @pytest.fixture
    def backbone(self):
        return "transformer-xl"

    @pytest.fixture
    def config(self, layers, backbone, blocks):
        chosen = {
            "attention": {"name": "summary", "layers": blocks},
            "feed_forward": {"name": "slots", "layers": blocks},
        }
        return parse_model({"backbone": backbone, "width": 8, **chosen}).sized(30, 5)

    def test_they_stand_where_they_were_asked_for(self, model, blocks):
        for number, block in enumerate(model.backbone.blocks, 1):
            chosen = blocks is None or number in blocks
            assert (isinstance(block.attention, Summary), isinstance(block.ffn, Slots)) == (
                chosen,
                chosen,
            )

    def test_what_is_remembered_lies_beyond_the_cached_inputs(self, model):
        stream = self.tokens(41)
        changed = stream.clone()
        changed[:, 0] = (changed[:, 0] + 1) % 30
        with torch.no_grad():
            before, after = model.encode(stream).hidden, model.encode(changed).hidden
        assert (before[:, 40] != after[:, 40]).any()

    def test_their_losses_are_the_encodings(self, model):
        assert model.encode(self.tokens(12)).auxiliary_loss.item() > 0


class TestBackboneThatSeesTokens(BackboneContract):
    """A layer gets the tokens of a passage, and remembers those before it as it remembers all else."""

    @pytest.fixture
    def backbone(self):
        return "transformer-xl"

    @pytest.fixture
    def config(self, layers, backbone):
        return parse_model({"backbone": backbone, "width": 8, "attention": {"name": "echo"}}).sized(
            30, 5
        )

    def test_they_are_those_of_its_positions(self, model):
        """With gradients, when a call is cut at the ends of segments."""
        (first, _), seen = model.backbone.blocks, []
        hook = first.attention.register_forward_hook(
            lambda _, given, out: seen.append(given[1].tokens)
        )
        state = model.encode(self.tokens(13)[:, :3]).state
        model.encode(self.tokens(13)[:, 3:], state)
        hook.remove()
        assert [part.shape[1] for part in seen] == [3, 2, 5, 3]
        assert torch.equal(torch.cat(seen, 1), self.tokens(13))


def test_a_layer_takes_at_most_thirty_lines() -> None:
    source = "".join(inspect.getsource(part) for part in (Mean, SummarySettings, Summary))
    assert len([line for line in source.splitlines() if line.strip()]) <= 30


@pytest.mark.parametrize("registered", [True, False])
def test_tensors_that_no_file_would_hold_are_refused(
    layers: None, monkeypatch: pytest.MonkeyPatch, registered: bool
) -> None:
    begins = Summary.__init__

    def begin(self: Summary, *settings: Any) -> None:
        begins(self, *settings)
        if registered:
            self.register_buffer("rates", torch.ones(2), persistent=False)
        else:
            self.rates = torch.ones(2)

    monkeypatch.setattr(Summary, "__init__", begin)
    config = parse_model(
        {"backbone": "transformer-xl", "width": 8, "attention": {"name": "summary"}}
    ).sized(30, 5)
    with pytest.raises(UsageError, match=r"Summary.*rates"):
        LanguageModel(config)


def test_usual_layers_leave_no_trace_in_an_id() -> None:
    for backbone in ("transformer", "transformer-xl"):
        assert nondefaults(parse_model({"backbone": backbone})) == {"backbone": backbone}
        dense = parse_model(
            {"backbone": backbone, "feed_forward": {"name": "dense", "layers": [1]}}
        )
        assert nondefaults(dense)["feed_forward"] == {"name": "dense", "layers": [1]}


def test_the_whole_pipeline_runs_with_them(
    layers: None,
    memlm: Memlm,
    text: Path,
    tmp_path: Path,
) -> None:
    tokens = memlm("tokenize", "--train", text, "--valid", text, "--test", text).reference
    model = memlm("train", tokens, *OWN, "--set", "model.attention.decay=0.7", *SMALL).reference
    index = memlm("build-index", memlm("build-datastore", model).reference).reference
    report = memlm("evaluate", index, "--exclude", "self", "--json")
    assert report.code == 0, report.err
    made = json.loads(report.out)
    assert 1 < made["metrics"]["perplexity"] < 1000
    page = memlm("report", made["reference"], "--output", tmp_path / "page.html")
    assert page.code == 0, page.err
    html = (tmp_path / "page.html").read_text("utf-8")
    for said in (
        "model.attention.name=",
        "model.attention.decay=0.7",
        "model.feed_forward.layers=[2]",
    ):
        assert said in html


@pytest.mark.usefixtures("layers")
def test_a_probe_from_outside_makes_reports_anew(
    memlm: Memlm,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of models of which it has something to show."""
    tokens = memlm("tokenize", "--train", text, "--test", text).reference
    models = [memlm("train", tokens, *more, *SMALL).reference for more in (OWN, ())]
    before = [memlm("evaluate", model).reference for model in models]
    monkeypatch.setitem(PROBES.targets, "summary_read", f"{__name__}:ReadProbe")
    probed, plain = (json.loads(memlm("evaluate", model, "--json").out) for model in models)
    assert probed["reference"] != before[0]
    assert [block["loss"] > 0 for block in probed["metrics"]["summary_read"]["blocks"]] == [
        True,
        True,
    ]
    assert plain["reference"] == before[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("feed_forward.name=slot",),
            "There is no feed-forward layer 'slot'; did you mean 'slots'?",
        ),
        (
            ("attention.name=softmax",),
            "There is no attention of a transformer-xl 'softmax'; known: compressive",
        ),
        (("attention.name=mine",), "relative, summary (MEMLM_PARTS adds your own)"),
        (
            ("feed_forward.name=slots", "feed_forward.slot=1"),
            "no setting 'model.feed_forward.slot'; did you mean 'model.feed_forward.slots'?",
        ),
        (
            ("feed_forward.name=slots", "feed_forward.layers=[3]"),
            "names block 3, but the last of them is 2",
        ),
        (("feed_forward.name=slots", "feed_forward.layers=[0]"), "greater than 0"),
    ],
)
def test_messages_know_them(
    layers: None,
    memlm: Memlm,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    told = [part for argument in arguments for part in ("--set", f"model.{argument}")]
    ended = memlm("train", "tokens/none", "--backbone", "transformer-xl", *told)
    assert ended.code == 2
    assert words in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("model", "accumulate", "told"),
    [
        ({"backbone": "transformer-xl", "attention": {"name": "recurrent"}}, 1, True),
        ({"backbone": "transformer-xl", "attention": {"name": "recurrent"}}, 2, False),
        ({"backbone": "transformer-xl", "attention": {"name": "summary"}}, 1, False),
        ({"backbone": "memformer"}, 1, True),
        ({"backbone": "memformer"}, 2, False),
        ({"backbone": "memformer", "slots": 0}, 1, False),
    ],
)
def test_what_writes_memory_learns_only_where_an_update_has_a_later_segment(
    layers: None, model: dict[str, Any], accumulate: int, told: bool
) -> None:
    config = TrainConfig(model=parse_model(model), accumulate=accumulate)
    assert (unlearned_memory(config) is not None) == told


def test_a_window_has_attention_of_windows(layers: None) -> None:
    model = LanguageModel(
        parse_model(
            {"backbone": "transformer", "width": 8, "feed_forward": {"name": "slots"}}
        ).sized(30, 5)
    )
    assert {type(block.ffn) for block in model.backbone.blocks} == {Slots}


def through_time(model: LanguageModel, batches: list[Batch]) -> Tensor:
    """Mean loss of segments that follow each other, in a model of one block whose memory is never
    detached.
    """
    (block,) = model.backbone.blocks
    memory, losses = torch.zeros(len(batches[0].inputs), 8, dtype=torch.float64), []
    for batch in batches:
        x = model.vocabulary.embed(batch.inputs) * model.backbone.scale
        normalized = block.attention_norm(x)
        read = block.attention.out(memory)
        seen = normalized.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        memory = 0.5 * memory + normalized.mean(1)
        x = x + seen + read[:, None]
        x = model.backbone.norm(x + block.ffn(block.ffn_norm(x)))
        losses.append(
            model.loss(x.flatten(0, 1), batch.targets.flatten()) + 1e-3 * read.square().mean()
        )
    return torch.stack(losses).mean()


@pytest.mark.parametrize("name", ["recurrent", "summary"])
def test_a_loss_reaches_through_memory_into_the_segment_before_where_the_layer_says_so(
    layers: None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of an update of two segments is that of back-propagation through time, in
    float64.
    """
    sizes = {
        "vocab_size": V,
        "width": 8,
        "heads": 2,
        "layers": 1,
        "dropout": 0.0,
        "segment_length": 8,
        "mem_length": 0,
    }
    config = parse_model({"backbone": "transformer-xl", **sizes, "attention": {"name": name}})
    trained = trainer(tmp_path, model=config, accumulate=2, steps=1, valid_every=0, clip_norm=0.0)
    model, updates = trained.run.model.double(), trained.updates
    batches, made, gradients = [], updates.batches, dict[str, Tensor]()

    def keep_batches() -> Iterator[UpdateBatch]:
        for part in made():
            batches.append(part.batch)
            yield part

    def keep_gradients() -> None:
        gradients.update({name: weight.grad.clone() for name, weight in model.named_parameters()})

    monkeypatch.setattr(updates, "batches", keep_batches)
    monkeypatch.setattr(updates, "change_weights", keep_gradients)
    plain_step(updates)
    names, weights = zip(*model.named_parameters(), strict=True)
    wanted = dict(
        zip(names, torch.autograd.grad(through_time(model, batches), weights), strict=True)
    )
    differs = {
        name
        for name in names
        if not torch.allclose(gradients[name], wanted[name], rtol=1e-12, atol=1e-15)
    }
    assert ("vocabulary.embedding" in differs) == (name == "summary")
    assert name == "summary" or not differs
