"""The provider contract on the shipped example of a command provider: `make test-providers`."""

from __future__ import annotations

import pytest

from tests.contracts.provider import ElsewhereContract, ReplacingContract
from tests.contracts.rigs import ProviderRig
from tests.integration.providers.command_rig import CAN, CommandRig
from tests.integration.providers.neocloud import Neocloud


class TestCommand(ReplacingContract, ElsewhereContract):
    """`activities.providers.command`"""

    can = CAN

    @pytest.fixture
    def rig(self, neocloud: Neocloud) -> ProviderRig:
        return CommandRig(neocloud, elsewhere=True)
