"""The provider contract on bare metal, as sushy-tools' emulator has it: `make test-providers`."""

from __future__ import annotations

import pytest

from tests.contracts.provider import ProviderContract
from tests.contracts.rigs import ProviderRig
from tests.integration.providers.bmcs import Bmcs
from tests.integration.providers.redfish_rig import CAN, RedfishRig


class TestRedfish(ProviderContract):
    can = CAN

    @pytest.fixture
    def rig(self, bmcs: Bmcs) -> ProviderRig:
        return RedfishRig(bmcs)
