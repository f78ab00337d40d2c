"""Every registered backbone keeps the contract."""

import pytest

from stages.models import trainable_backbones
from tests.stages.models.backbones.contract import BackboneContract


class TestEveryBackbone(BackboneContract):
    @pytest.fixture(params=trainable_backbones())
    def backbone(self, request):
        return request.param
