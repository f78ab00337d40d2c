"""What stands for artifacts that are not made yet has their shape, and is made when it is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.calibration import Calibration, Taken
from pipelines.expected import ExpectedStore
from stages.artifacts.artifact import Artifact
from stages.artifacts.cost import Cost, Effort
from stages.artifacts.make import plan
from stages.artifacts.stage import Execution, Inputs, Job, Stage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import ArtifactError

LENGTH = 1000
EFFORT = Effort(LENGTH, "letters", {}, scale=LENGTH)


@dataclass
class Letters(Stage[StageConfig]):
    """A text of so many letters, of which so many stand for all; 1 letter takes it 2 seconds."""

    kind = "tokens"
    Config = StageConfig
    standing: int | None = LENGTH
    types: int = 26
    made: int = 0

    def inputs(self, config: StageConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs({role: store.get(reference) for role, reference in references.items()})

    def cost(self, config: StageConfig, inputs: Inputs) -> Cost:
        return Cost(files={"text": LENGTH}, metrics={"letters": LENGTH, "vocabulary_size": 26})

    def effort(self, config: StageConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Effort:
        return Effort(metrics["letters"], "letters", {}, scale=metrics["letters"])

    def stand_in(self, job: Job[StageConfig]) -> dict[str, Any] | None:
        self.made += 1
        if self.standing is None:
            return None
        job.draft.add("text").write_text("a" * self.standing)
        return {"letters": self.standing, "vocabulary_size": self.types}

    def run(self, job: Job[StageConfig]) -> dict[str, Any]:
        raise AssertionError("only planned")


class Copies(Letters):
    """Reads a text; 1 letter takes it 3 seconds."""

    kind = "model"

    def measured_seconds(
        self, config: StageConfig, inputs: Inputs, execution: Execution, effort: Effort
    ) -> float | None:
        if not inputs["source"].path.is_dir():
            return None
        return 3.0 * len(inputs["source"].file("text").read_text())


@dataclass
class Planned:
    """A text that is expected, and what is to read it."""

    calibration: Calibration
    store: ExpectedStore
    inputs: Inputs
    told: list[str]

    def measured(self) -> Taken | None:
        return self.calibration.measured("copies", Copies(), StageConfig(), self.inputs, EFFORT)


def planned(folder: Path, text: Stage[StageConfig]) -> Planned:
    store, told = ExpectedStore(folder / "store"), list[str]()
    calibration = Calibration(store.root, folder / "scratch", Execution(), told.append)
    expected = expect(text, calibration, store)
    return Planned(calibration, store, Inputs({"source": expected}), told)


def expect(stage: Stage[StageConfig], calibration: Calibration, store: ExpectedStore, **references: str) -> Artifact:
    work, config, inputs = plan(stage, StageConfig(), references, store, Execution())
    expected = store.expect(work, inputs, stage.cost(config, inputs))
    calibration.stand_ins.announce(stage, config, inputs, expected)
    return expected


def test_what_reads_something_that_is_not_made_is_measured_on_its_stand_in(tmp_path: Path) -> None:
    text = Letters()
    found = planned(tmp_path, text)
    assert text.made == 0, "it is made when it is read"
    assert found.measured() == found.measured() == Taken(3.0 * LENGTH, True)
    assert text.made == 1 and found.told == ["copies", "copies"]
    assert not (tmp_path / "store").exists()


def test_what_stands_for_something_has_its_place_in_the_lineage(tmp_path: Path) -> None:
    found = planned(tmp_path, Letters())
    copies = expect(Copies(), found.calibration, found.store, source=found.inputs["source"].reference)
    model = found.calibration.stand_ins.open(copies.reference)
    assert (model.reference, model.digest) == (copies.reference, copies.digest)
    assert model.input("source").file("text").read_text() == "a" * LENGTH


@pytest.mark.parametrize(
    "text",
    [Letters(None), Letters(LENGTH // 2 - 1), Letters(types=27)],
    ids=["nothing stands for it", "too small to tell", "letters that no model expects"],
)
def test_nothing_is_measured_on_what_does_not_fit(tmp_path: Path, text: Letters) -> None:
    found = planned(tmp_path, text)
    assert found.measured() is None
    with pytest.raises(ArtifactError, match="Nothing stands for"):
        found.calibration.stand_ins.inputs(found.inputs)


def test_what_is_not_expected_is_that_of_the_store(tmp_path: Path) -> None:
    found = planned(tmp_path, Letters())
    with pytest.raises(ArtifactError, match="is not in"):
        found.calibration.stand_ins.open("tokens/0123456789ab")
