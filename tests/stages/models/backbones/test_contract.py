"""Every registered backbone keeps the contract."""

import pytest

from stages.models import BACKBONES
from tests.stages.models.backbones.contract import BackboneContract


class TestEveryBackbone(BackboneContract):
    @pytest.fixture(params=BACKBONES.names())
    def backbone(self, request):
        return request.param
