"""The provider contract on machines of groups, as moto's server has them."""

from __future__ import annotations

import pytest

from activities.ports import Verb
from tests.contracts.provider import ReplacingContract
from tests.contracts.rigs import ProviderRig
from tests.integration.providers.aws_rig import CAN, GroupRig, NodeGroupRig
from tests.integration.providers.conftest import far, moto
from tests.integration.providers.far_side import FarSide

__all__ = ["far", "moto"]


class TestAutoScaling(ReplacingContract):
    can = CAN
    instant = frozenset({Verb.TERMINATE})  # moto knows no `shutting-down`

    @pytest.fixture
    def rig(self, far: FarSide) -> ProviderRig:
        return GroupRig(far)


class TestNodeGroup(ReplacingContract):
    can = CAN
    instant = frozenset({Verb.TERMINATE})

    @pytest.fixture
    def rig(self, far: FarSide) -> ProviderRig:
        return NodeGroupRig(far)
