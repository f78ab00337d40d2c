"""Times by a part of the work that is done to measure them, where need be on what stands for what is not made yet."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.stand_ins import StandIns
from stages.artifacts.cost import Effort
from stages.artifacts.stage import Execution, Inputs, Stage
from stages.config import StageConfig
from stages.errors import MemlmError


class Taken(NamedTuple):
    """Seconds that some work takes, and whether stand-ins were read to measure it."""

    seconds: float
    stand_ins: bool


class Calibration:
    """Measures stages one after the other, in the order of a recipe."""

    def __init__(self, root: Path, folder: Path, execution: Execution, measuring: Callable[[str], None]) -> None:
        """`root`: of the store. `folder`: for what is made meanwhile. `measuring` hears the name of a stage."""
        self.stand_ins = StandIns(root, folder, execution)
        self._execution = execution
        self._measuring = measuring

    def measured(
        self, name: str, stage: Stage[Any], config: StageConfig, inputs: Inputs, effort: Effort
    ) -> Taken | None:
        """Of resolved settings; None where no part of the work tells."""
        self._measuring(name)
        seconds = stage.measured_seconds(config, inputs, self._execution, effort)
        if seconds is not None or all(artifact.path.is_dir() for artifact in inputs.artifacts.values()):
            return None if seconds is None else Taken(seconds, False)
        with suppress(MemlmError, LookupError, OSError):
            seconds = stage.measured_seconds(config, self.stand_ins.inputs(inputs), self._execution, effort)
        return None if seconds is None else Taken(seconds, True)
