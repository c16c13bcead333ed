"""Worker versioning on a real server: with a build id set, incidents begin on the build that is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from medevac.incident import End
from simulation.hazards import Effect
from simulation.layout import IRONWORKS
from tests.acceptance.stack import stack
from worker.setup import make_current
from workflows.messages import node_workflow_id

DEPLOYMENT, BUILD = "medevac", "build-7"


@pytest.mark.slow
async def test_an_incident_ends_on_the_build_that_began_it(tmp_path: Path) -> None:
    async with stack(tmp_path, workers=1, variables={"MEDEVAC_BUILD_ID": BUILD}) as up:
        client = await up.client()
        await make_current(client, DEPLOYMENT, BUILD)
        node = up.pick(IRONWORKS)
        up.world.inject(node.name, "xid/119", cure=(Effect.REBOOT,))
        await up.report(node, "xid/119")
        await up.until(lambda: (v := up.incident(node.name)) and v.end is End.RETURNED, "the incident has ended")
        handle = client.get_workflow_handle(node_workflow_id(node.cluster, node.name))
        versioning = (await handle.describe()).raw_description.workflow_execution_info.versioning_info
        assert versioning.deployment_version.build_id == BUILD
