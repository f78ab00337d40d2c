"""Sentences with their sources, from outside the package: examples, a tiny encoder-decoder, and the
whole pipeline.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import Tensor, nn

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import STAGES
from stages.artifacts.make import make
from stages.artifacts.manifest import wrong_manifest
from stages.artifacts.schema import Count, Figures
from stages.artifacts.stage import Execution, Inputs, Job, SerialStage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.encoding.encode import SplitReader, encode
from stages.errors import ArtifactError
from stages.examples import EXAMPLES
from stages.examples.cutting import Cutting, WindowSettings
from stages.examples.examples import BATCH_TOKENS, Batch, Block, Corpus, Examples
from stages.examples.form import SplitForm, token_ids, token_offsets
from stages.examples.windows import Window, window_starts
from stages.models import BACKBONES
from stages.models import backbone as interface
from stages.models.backbone import Backbone, Encoding
from stages.models.config import BackboneConfig, Reads, StateArray
from stages.models.weights import load_model
from stages.registry import Part
from stages.text.simple_tokenizers import WordTokenizer
from stages.tokenize import TOKENS
from tests.builders.rewritten import rewritten
from tests.cli.conftest import Memlm, logs, memlm, told  # noqa: F401

V, EOS, LONGEST = 24, 0, 7


class PairFigures(Figures):
    """A split has a source, too."""

    source_tokens: Count


SOURCE = {
    "source_ids": token_ids("source_tokens"),
    "source_offsets": token_offsets("source_tokens"),
}
FORM = SplitForm(PairFigures, SOURCE, source=True)


@dataclass(frozen=True)
class Pairs(Examples):
    """Example i is document i, a sentence that is read with sentence i of the source; rows are
    padded with `<eos>`.
    """

    ids: Any
    eos: int
    offsets: Any
    source_ids: Any
    source_offsets: Any

    @classmethod
    def open(cls, split: Mapping[str, Any], eos: int, cutting: Cutting) -> Self:
        return cls(
            split["ids"], eos, split["doc_offsets"], split["source_ids"], split["source_offsets"]
        )

    @cached_property
    def documents(self) -> np.ndarray:
        return np.asarray(self.offsets[:])

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.documents)

    def starts(self, which: np.ndarray) -> np.ndarray:
        return self.documents[which]

    def batch(self, which: np.ndarray) -> Batch:
        targets, mask = self._padded(self.ids, self.documents, which)
        source, source_mask = self._padded(
            self.source_ids, np.asarray(self.source_offsets[:]), which
        )
        begin = torch.full((len(which), 1), self.eos)
        places = self.starts(which)[:, None] + np.arange(targets.shape[1])
        inputs = torch.cat((begin, targets[:, :-1]), 1)
        read = {
            "inputs": inputs,
            "targets": targets,
            "mask": mask,
            "source": source,
            "source_mask": source_mask,
        }
        return Batch(places=places, **read)

    def blocks(self, start: int, stop: int, batch_tokens: int = BATCH_TOKENS) -> Iterator[Block]:
        first, last = np.searchsorted(self.documents, (start, stop - 1), side="right") - 1
        size = max(1, batch_tokens // int(self.lengths.max()))
        for begin in range(first, last + 1, size):
            which = np.arange(begin, min(begin + size, last + 1))
            bounds = zip(
                self.documents[which].tolist(), self.documents[which + 1].tolist(), strict=True
            )
            windows = [Window(a, b, a) for a, b in bounds]
            batch = self.batch(which)
            a, b = max(start, windows[0].start), min(stop, windows[-1].stop)
            batch.targets = torch.from_numpy(np.asarray(self.ids[a:b]).astype(np.int64))
            yield Block(a, b, windows, batch, continues=False)

    def _padded(self, ids: Any, offsets: np.ndarray, which: np.ndarray) -> tuple[Tensor, Tensor]:
        """Sentences int64 [B, L], and which of their tokens count, bool [B, L]."""
        parts = [
            np.asarray(ids[offsets[i] : offsets[i + 1]]).astype(np.int64) for i in which.tolist()
        ]
        rows = [torch.from_numpy(part) for part in parts]
        mask = [torch.ones(len(row), dtype=torch.bool) for row in rows]
        pad = torch.nn.utils.rnn.pad_sequence
        return pad(rows, batch_first=True, padding_value=self.eos), pad(mask, batch_first=True)


class TranslatorConfig(BackboneConfig):
    """One layer on each side."""

    backbone: Literal["translator"] = "translator"

    @property
    def reads(self) -> Reads:
        return Reads(source=True)

    def state_spec(self, context: int) -> dict[str, StateArray]:
        return {}

    def sizes(self, segment_length: int) -> dict[str, Any]:
        return {}

    def reading(self, windows: WindowSettings) -> Self:
        return self


class Translator(Backbone):
    """A recurrent decoder that attends to the embeddings of the source by their distance from its
    own place.
    """

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__()
        self.source, self.places = (
            nn.Embedding(V, config.width),
            nn.Embedding(LONGEST + 1, config.width),
        )
        self.decoder = nn.GRU(config.width, config.width, batch_first=True)
        self.query, self.out = (
            nn.Linear(config.width, config.width),
            nn.Linear(2 * config.width, config.width),
        )

    def read(self, inputs: interface.Inputs) -> Encoding:
        assert inputs.source is not None and inputs.source_mask is not None
        hidden, _ = self.decoder(inputs.embedded)
        own, others = (self.places.weight[: x.shape[1]] for x in (inputs.embedded, inputs.source))
        scores = self.query(hidden + own) @ others.T
        scores = scores.masked_fill(~inputs.source_mask[:, None], -torch.inf)
        return Encoding(
            self.out(torch.cat((hidden, scores.softmax(-1) @ self.source(inputs.source)), -1)), None
        )


class PairsConfig(StageConfig):
    sentences: dict[str, int] = Field({"train": 300, "valid": 40, "test": 40})


class MakePairs(SerialStage[PairsConfig]):
    """Source sentences of random words, and as target word by word its partner."""

    name = "make-pairs"
    kind = "tokens"
    Config = PairsConfig
    schema = TOKENS

    def inputs(self, config: PairsConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs()

    def run(self, job: Job[PairsConfig]) -> dict[str, Any]:
        words = {
            word: id
            for id, word in enumerate(("<eos>", "<unk>", *(f"word{id}" for id in range(2, V))))
        }
        WordTokenizer(words, lowercase=False).save(job.draft.add("tokenizer.json"))
        random, figures = np.random.default_rng(0), {}
        form = {"line_ends": 1, "curly_quotes": 0, "straight_quotes": 0}
        for split, count in job.config.sentences.items():
            sources = [random.integers(2, V, random.integers(2, LONGEST)) for _ in range(count)]
            ends = np.cumsum([0, *(len(source) + 1 for source in sources)])
            ids = np.concatenate([[*((source - 2) * 5 % (V - 2) + 2), EOS] for source in sources])
            arrays = {
                "ids": ids.astype(np.uint16),
                "source_ids": np.concatenate([[*source, EOS] for source in sources]).astype(
                    np.uint16
                ),
                **dict.fromkeys(("doc_offsets", "source_offsets"), ends),
                "paragraph_ends": ends[1:],
                "paragraph_hashes": random.integers(0, 2**63, count).astype(np.uint64),
            }
            for name, values in arrays.items():
                layout = ArrayLayout(
                    f"tokens.zarr/{split}/{name}", values.shape, values.dtype, 1 << 20
                )
                job.draft.write_whole(layout, values)
            n = len(ids)
            sizes = {
                "tokens": n,
                "source_tokens": n,
                "characters": 5 * n,
                "bytes": 6 * n,
                "words": n - count,
                "documents": count,
            }
            figures[split] = {**sizes, **form, "unknown_rate": 0.0}
        whole = {"vocabulary_size": V, "eos_id": EOS, "eos_after": "never", "tokenizer": "word"}
        return {"splits": figures, **whole, "examples": "pairs"}


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Artifact:
    monkeypatch.setitem(EXAMPLES.targets, "pairs", Part(f"{__name__}:FORM", f"{__name__}:Pairs"))
    parts = Part(f"{__name__}:TranslatorConfig", f"{__name__}:Translator")
    monkeypatch.setitem(BACKBONES.targets, "translator", parts)
    monkeypatch.setitem(STAGES.targets, "make-pairs", f"{__name__}:MakePairs")
    return make(MakePairs(), PairsConfig(), {}, Store(tmp_path / "store"), Execution()).artifact


def test_pairs_are_trained_stored_searched_and_evaluated(tokens: Artifact, memlm: Memlm) -> None:
    sizes = (
        "--segment-length",
        8,
        "--batch-tokens",
        256,
        "--set",
        "model.width=32",
        "--set",
        "model.dropout=0",
    )
    model = memlm(
        "train", tokens.reference, "--backbone", "translator", "--steps", 400, "--lr", 0.01, *sizes
    )
    trained = tokens.store.get(model.reference, "model").metrics
    tokens_a_pair = tokens.metrics["splits"]["train"]["tokens"] / 300
    assert trained["tokens"] == 400 * round(
        256 // 8 * tokens_a_pair
    )  # real tokens, not segments of 8
    datastore = memlm("build-datastore", model.reference)
    index = memlm("build-index", datastore.reference)
    neighbors = memlm("precompute-neighbors", index.reference, "--k", 4, "--exclude", "self")
    assert neighbors.code == 0, neighbors.err
    stored = tokens.store.get(datastore.reference, "datastore").zarr("datastore.zarr")["values"][:]
    np.testing.assert_array_equal(
        stored, tokens.zarr("tokens.zarr")["train/ids"][:], "a row is a target token"
    )
    report = memlm("evaluate", index.reference, "--json")
    assert report.code == 0, report.err
    plain, read = (row["perplexity"] for row in json.loads(report.out)["metrics"]["rows"])
    assert read <= plain < 5  # of 22 words, where who does not read the source knows none
    assert any("BLEU" in line and "translator" in line for line in told(report.err))


def test_a_sentence_is_read_as_it_would_be_alone(tokens: Artifact, memlm: Memlm) -> None:
    """Padding of either side changes nothing; ranges may cut a sentence."""
    model = memlm(
        "train", tokens.reference, "--backbone", "translator", "--steps", 2, "--segment-length", 8
    )
    loaded = load_model(tokens.store.get(model.reference, "model").path, "cpu")
    examples = Corpus.of(tokens).examples("test", loaded.config.cutting(WindowSettings(8, 8)))
    total = int(examples.documents[-1])
    together = torch.cat([block.hidden for block in encode(loaded, examples.blocks(0, total))])
    alone = torch.cat(
        [block.hidden for block in encode(loaded, examples.blocks(0, total, batch_tokens=1))]
    )
    cut = [examples.blocks(a, b) for a, b in ((0, 10), (10, 33), (33, total))]
    parts = torch.cat([block.hidden for blocks in cut for block in encode(loaded, blocks)])
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(together, parts)


def test_what_would_learn_padding_or_cut_pairs_is_refused(tokens: Artifact, memlm: Memlm) -> None:
    model = memlm(
        "train", tokens.reference, "--backbone", "translator", "--steps", 2, "--segment-length", 8
    ).reference
    trime = memlm(
        "train", tokens.reference, "--backbone", "translator", "--method", "trime", "--steps", 2
    )
    assert trime.code == 4 and "padding" in trime.err and "--method lm" in trime.err
    packed = memlm("pack-batches", tokens.reference, "--segment-length", 8)
    assert packed.code == 2 and "sentences are packed" in packed.err
    asked = memlm("evaluate", model, "--beam", 2)
    assert asked.code == 2 and "translator" in asked.err and "--beam 0" in asked.err


@pytest.mark.parametrize("by_document", [False, True])
def test_windows_are_the_sentences_that_are_read(tokens: Artifact, by_document: bool) -> None:
    """Memory of the same window must not reach into another sentence, however long a window may be."""
    reader = SplitReader(
        Corpus.of(tokens), WindowSettings(8, 8), by_document, torch.device("cpu"), "fp32"
    )
    borders = tokens.zarr("tokens.zarr")["test/doc_offsets"][:].tolist()
    places = reader.places("test", borders[3] + 1, borders[6])
    assert [(one.start, one.stop) for one in places.windows] == list(pairwise(borders[3:7]))
    starts = window_starts(places.windows, borders[3] + 1, borders[6])
    np.testing.assert_array_equal(starts, places.document_starts)


def test_arrays_of_a_kind_are_checked_as_the_kind_says(tokens: Artifact) -> None:
    values = np.full(tokens.metrics["splits"]["train"]["source_tokens"], V, np.uint16)
    with pytest.raises(
        ArtifactError, match=f"train/source_ids: row 0 holds {V}, where ids of the vocabulary"
    ):
        rewritten(tokens, "tokens.zarr/train/source_ids", values).zarr("tokens.zarr")[
            "train/source_ids"
        ][:]
    with pytest.raises(ArtifactError, match="source_offsets is 3, where the manifest says 301"):
        rewritten(tokens, "tokens.zarr/train/source_offsets", np.arange(3)).zarr("tokens.zarr")[
            "train/source_offsets"
        ]


def test_figures_that_a_kind_asks_must_be_there(tokens: Artifact) -> None:
    splits = {
        "train": {
            k: v for k, v in tokens.metrics["splits"]["train"].items() if k != "source_tokens"
        }
    }
    changed = tokens.manifest.model_copy(update={"metrics": {**tokens.metrics, "splits": splits}})
    assert "Field required" in str(wrong_manifest(changed))
    with pytest.raises(ArtifactError, match="There is no kind of examples 'triples'"):
        wrong_manifest(
            tokens.manifest.model_copy(
                update={"metrics": {**tokens.metrics, "examples": "triples"}}
            )
        )
