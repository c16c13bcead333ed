"""The provider contract on EC2, as moto's server has it; on machines of groups: `make test-providers`."""

from __future__ import annotations

import pytest

from activities.ports import Verb
from tests.contracts.provider import ReplacingContract
from tests.contracts.rigs import ProviderRig
from tests.integration.providers.aws_rig import CAN, AwsRig
from tests.integration.providers.far_side import FarSide


class TestAlone(ReplacingContract):
    can = CAN
    instant = frozenset({Verb.TERMINATE})  # moto knows no `shutting-down`

    @pytest.fixture
    def rig(self, far: FarSide) -> ProviderRig:
        return AwsRig(far)
