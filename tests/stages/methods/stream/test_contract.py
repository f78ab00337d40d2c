"""Every registered method of tasks keeps the contract."""

from typing import Any

import pytest

from stages.methods import METHODS
from tests.stages.methods.stream.contract import TaskMethodContract


class TestEveryMethodOfTasks(TaskMethodContract):
    @pytest.fixture(
        scope="class", params=[n for n in METHODS.names() if METHODS.settings(n).learns != "text"]
    )
    @classmethod
    def name(cls, request: pytest.FixtureRequest) -> Any:
        return request.param
