"""API calls per action on AWS, and 200 machines that reboot at once inside AWS's published request limits.

The far side is moto's server behind a proxy that counts every call, and that refuses what exceeds the limits, as AWS
would. Calls go through the real activities, with a ledger on SQLite; who is told to come back comes back then, as
Temporal has it.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table
from temporalio.exceptions import ApplicationError

from activities.ports import Unreadable, Verb
from benchmarks._stack import quantile
from medevac.fleet.node import Node
from medevac.incident import Outcome
from tests.contracts.desk import Desk
from tests.integration.providers.aws_rig import AwsRig, GroupRig, NodeGroupRig, StopStartRig
from tests.integration.providers.far_side import REGION, FarSide

MACHINES = 200
LIMITS = {"RebootInstances": (50.0, 5.0), "DescribeInstances": (100.0, 20.0), "DescribeInstanceStatus": (100.0, 20.0)}
"""Size and refill per second, as AWS publishes them for every account and region."""
KINDS: dict[str, type[AwsRig]] = {
    "alone": AwsRig, "stop_start": StopStartRig, "Auto Scaling": GroupRig, "EKS node group": NodeGroupRig,
}  # fmt: skip
ACTIONS = {
    "reboot": (Verb.REBOOT,), "reinstall": (Verb.REINSTALL,), "terminate": (Verb.TERMINATE,),
    "replace": (Verb.REQUEST, Verb.TERMINATE),
}  # fmt: skip


@contextmanager
def far_side() -> Iterator[FarSide]:
    from moto.server import ThreadedMotoServer

    os.environ |= {
        "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    }  # fmt: skip
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        httpx.post(f"http://{host}:{port}/moto-api/reset").raise_for_status()
        with FarSide(f"http://{host}:{port}") as far:
            yield far
    finally:
        server.stop()


def per_action(kind: str, action: str, folder: Path) -> dict[str, int]:
    """Calls from the look before the act to the proof, whose world is there at the first look."""
    with far_side() as far:
        rig = KINDS[kind](far)
        desk = Desk(rig, folder / f"{kind}-{action}.sqlite")
        far.calls.clear()
        for verb in ACTIONS[action]:
            acted = desk.act(verb)
            assert acted.outcome is Outcome.DONE, acted.reason  # noqa: S101
            rig.pass_time()
        proof = desk.prove(*ACTIONS[action], deadline_s=60)
        assert proof.outcome is Outcome.DONE, proof.reason  # noqa: S101
        desk.close()
        return dict(Counter(call.api for call in far.calls))


def at_once(folder: Path) -> dict[str, float | int]:
    """All ask in one moment; each is done when its new boot is proved."""
    with far_side() as far:
        rig = AwsRig(far)
        nodes = [rig.join(f"gpu-{n}", rig.launch()) for n in range(2, MACHINES + 2)]
        far.calls.clear()
        far.limits |= LIMITS
        far.heard = lambda call: [rig.boot(id) for id in call.ids if call.api == "RebootInstances"]
        asked, failed, waits = [], 0, 0

        def one(n: int) -> tuple[Outcome, int, float]:
            desk = copy.copy(shared)
            desk.rig, desk.incident = _Single(rig, nodes[n]), f"inc-{n}"
            came_back = 0
            while True:
                try:
                    result = desk.act(Verb.REBOOT, attempt=came_back + 1)
                    break
                except (ApplicationError, Unreadable) as error:
                    came_back += 1
                    delay = getattr(error, "next_retry_delay", None)
                    time.sleep(delay.total_seconds() if delay else 1.0)
            sent = time.monotonic() - began
            if result.outcome is not Outcome.DONE:
                return result.outcome, came_back, sent
            return desk.prove(Verb.REBOOT, deadline_s=120).outcome, came_back, sent

        shared = Desk(rig, folder / "many.sqlite")
        began = time.monotonic()
        with ThreadPoolExecutor(MACHINES) as pool:
            for outcome, came_back, sent in pool.map(one, range(MACHINES)):
                failed += outcome is not Outcome.DONE
                waits += came_back
                asked.append(sent)
        shared.close()
        reboots = Counter(call.ids[0] for call in far.done("RebootInstances"))
        return {
            "machines": MACHINES,
            "rebooted_once": sum(count == 1 for count in reboots.values()),
            "failed": failed,
            "throttled_by_aws": sum(far.throttled.values()),
            "told_to_come_back": waits,
            "calls": len(far.calls),
            "calls_per_machine": round(len(far.calls) / MACHINES, 2),
            "last_call_s": round(max(asked), 1),
            "p50_call_s": round(quantile(asked, 0.5), 1),
            "fastest_possible_s": (MACHINES - LIMITS["RebootInstances"][0]) / LIMITS["RebootInstances"][1],
        }


class _Single:
    """One machine of many at one far side."""

    def __init__(self, rig: AwsRig, node: Node) -> None:
        self._rig = rig
        self.node = node

    def __getattr__(self, name: str) -> object:
        return getattr(self._rig, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="medevac-bench-") as folder:
        table = Table("machine", "action", "calls", "which")
        counted = {}
        for kind in KINDS:
            for action in ("reboot",) if kind == "stop_start" else ACTIONS:
                calls = per_action(kind, action, Path(folder))
                counted[f"{kind}/{action}"] = sum(calls.values())
                named = ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))
                table.add_row(kind, action, str(sum(calls.values())), named)
        console.print(table)
        storm = at_once(Path(folder))
        table = Table("200 reboots at once", "")
        for name, value in storm.items():
            table.add_row(name.replace("_", " "), str(value))
        console.print(table)
    print(json.dumps({"benchmark": "providers", "calls": counted, "at_once": storm}))


if __name__ == "__main__":
    main()
