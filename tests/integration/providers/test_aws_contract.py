"""The provider contract on EC2, as moto's server has it; on machines of groups: `make test-providers`."""

from __future__ import annotations

import pytest

from activities.ports import Verb
from activities.providers.aws.options import LaunchTemplate
from tests.contracts.provider import ElsewhereContract, ReplacingContract
from tests.contracts.rigs import ProviderRig
from tests.integration.providers.aws_rig import CAN, AwsRig
from tests.integration.providers.far_side import FarSide


class TestAlone(ReplacingContract):
    can = CAN
    instant = frozenset({Verb.TERMINATE})  # moto knows no `shutting-down`

    @pytest.fixture
    def rig(self, far: FarSide) -> ProviderRig:
        return AwsRig(far)


class TestElsewhere(ElsewhereContract):
    @pytest.fixture
    def rig(self, far: FarSide) -> ProviderRig:
        rig = AwsRig(far)
        templates = {"train": LaunchTemplate(id=rig.template)}
        rig.aws.options = rig.aws.options.model_copy(update={"launch_templates": templates})
        rig.aws._access.options = rig.aws.options
        return rig

    def test_what_it_cannot_make_it_says_without_a_call(self, far: FarSide) -> None:
        rig = AwsRig(far)
        told = self.told(rig)
        assert "`launch_templates` names none for pool train" in rig.aws.cannot_make(told)
        elsewhere = told.model_copy(update={"topology": {"region": "eu-north-1"}})
        assert "`regions` doesn't name" in rig.aws.cannot_make(elsewhere)
