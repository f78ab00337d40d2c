"""Every registered method keeps the contract."""

import pytest

from stages.methods import METHODS
from tests.stages.methods.contract import MethodContract


class TestEveryMethod(MethodContract):
    @pytest.fixture(params=METHODS.names())
    def name(self, request):
        return request.param
