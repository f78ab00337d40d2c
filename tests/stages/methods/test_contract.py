"""Every registered method that learns text keeps the contract."""

import pytest

from stages.methods import METHODS
from tests.stages.methods.contract import MethodContract

LEARN_TEXT = [name for name in METHODS.names() if METHODS.settings(name).learns == "text"]


class TestEveryMethod(MethodContract):
    # Those with an input of their own are in `test_sparse_memory.py` and `test_memory_decoder.py`.
    @pytest.fixture(
        params=[name for name in LEARN_TEXT if not METHODS.settings(name).indirect_inputs]
    )
    def name(self, request):
        return request.param
