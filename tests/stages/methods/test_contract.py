"""Every registered method that learns text keeps the contract."""

import pytest

from stages.methods import METHODS
from tests.stages.methods.contract import MethodContract


class TestEveryMethod(MethodContract):
    @pytest.fixture(params=[name for name in METHODS.names() if METHODS.settings(name).learns == "text"])
    def name(self, request):
        return request.param
