"""Artifacts that stand for those not made yet, to measure what reads them: of a part of the text and made-up numbers.

They lie in a folder of their own, and are made when they are first read.
"""

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import Draft
from stages.artifacts.manifest import InputRecord
from stages.artifacts.stage import Execution, Inputs, Job, Stage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import ArtifactError


class _Work(NamedTuple):
    """What is to be made, and the artifact that is expected of it."""

    stage: Stage[Any]
    config: StageConfig
    inputs: Inputs
    expected: Artifact


class StandIns(Store):
    """A store, read only, and on top of it stand-ins under the references of what they stand for."""

    def __init__(self, root: Path, folder: Path, execution: Execution) -> None:
        """`folder`: where they are made; it may go when they do."""
        super().__init__(root)
        self._folder = folder
        self._execution = execution.alone
        self._works: dict[str, _Work] = {}
        self._made: dict[str, Artifact] = {}

    def announce(self, stage: Stage[Any], config: StageConfig, inputs: Inputs, expected: Artifact) -> None:
        """Let something stand for an artifact that is expected, once it is read."""
        self._works[expected.reference] = _Work(stage, config, inputs, expected)

    def inputs(self, inputs: Inputs) -> Inputs:
        """The same, with what stands for those that are not there. Raises: as `open`."""
        artifacts = {
            role: self.open(artifact.reference) if artifact.reference in self._works else artifact
            for role, artifact in inputs.artifacts.items()
        }
        return Inputs(artifacts, inputs.files)

    def open(self, reference: str) -> Artifact:
        """Raises: ArtifactError where nothing stands for it, too."""
        if reference not in self._works:
            return super().open(reference)
        if reference not in self._made:
            self._made[reference] = self._make(self._works[reference])
        return self._made[reference]

    def find_input(self, artifact: Artifact, role: str, record: InputRecord) -> Artifact:
        if record.reference in self._works:
            return self.open(record.reference)
        return super().find_input(artifact, role, record)

    def _make(self, work: _Work) -> Artifact:
        expected, inputs = work.expected, self.inputs(work.inputs)
        path = self._folder / expected.reference
        with closing(Draft(path, {})) as draft:
            metrics = work.stage.stand_in(Job(work.config, inputs, path, self._execution, draft))
            if metrics is None or not _fits(work, inputs, metrics):
                raise ArtifactError(f"Nothing stands for {expected.reference}.")
            files = draft.finish_files()
        changes = {"files": files, "metrics": metrics, "digest": expected.digest}
        return Artifact(self, path, expected.manifest.model_copy(update=changes))


def _fits(work: _Work, inputs: Inputs, metrics: dict[str, Any]) -> bool:
    """Whether it is as large where time depends on that, and of no larger vocabulary than models are expected for."""
    expected = work.expected.metrics
    real, part = (work.stage.effort(work.config, *of) for of in ((work.inputs, expected), (inputs, metrics)))
    alike = real is None or part is None or real.is_like(part)
    return alike and metrics.get("vocabulary_size", 0) <= expected.get("vocabulary_size", 0)
