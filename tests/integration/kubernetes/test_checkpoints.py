"""Jobs that speak no checkpoint protocol: a drain goes by what the policy says about them, on a real API server."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.evacuation import EvacuationActivities
from activities.kubernetes.nodes import notes
from medevac.incident import Outcome
from medevac.policy.loading import preset
from medevac.policy.plan import Drain
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.house import RealHouse
from tests.integration.kubernetes.site import Site, until
from tests.unit.activities.house import run

READS = "import pathlib, sys; print(pathlib.Path(sys.argv[1]).read_text()); assert sys.argv[2] == 'train'"


@pytest.mark.parametrize("by", ["annotation", "command"])
def test_its_pods_go_once_the_next_checkpoint_shows(site: Site, connect: Connect, tmp_path: Path, by: str) -> None:
    last = tmp_path / "last"
    cluster = connect(probes={"on-disk": (sys.executable, "-c", READS, str(last), "{name}")})
    house = RealHouse(tmp_path, cluster)
    shows = "annotation: example.com/last" if by == "annotation" else "command: on-disk"
    text, now = f"{preset('demo')}\ncheckpoints: [{{kinds: [Pod], {shows}}}]\n", datetime.now(UTC)
    house.policies.activate(house.policies.propose(text, "test", now), None, now)
    drains = EvacuationActivities(house.registry, house.look, policies=house.policies)
    name = site.add_node()
    site.pod("train", name)
    node = house.marked(name)

    def saves() -> None:
        until("the notice", lambda: "medevac.dev/evacuate-by" in notes(site.pods()[0]))
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        says[by](at)

    says: dict[str, Callable[[str], object]] = {
        "annotation": lambda at: site.patch(
            site.within("pods", "train"), {"metadata": {"annotations": {"example.com/last": at}}}
        ),
        "command": last.write_text,
    }
    job = threading.Thread(target=saves)
    job.start()
    began = time.monotonic()
    request = house.request(node, Drain.CHECKPOINT, 900, 5)
    result = run(drains.evacuate, request, start_to_close_s=1_200, whole_s=1_200)
    assert result.outcome is Outcome.DONE, result
    assert time.monotonic() - began < 400, "the checkpoint was waited for, not the deadline"
    job.join()
    house.close()
