"""A worker's attempt in a process of its own, to be killed in it. Importing it warms what every attempt needs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, cast

from activities.ports import Provider, Verb
from activities.providers.aws import access
from activities.providers.aws.provider import make
from activities.providers.redfish.provider import make as make_redfish
from medevac.fleet.node import Node
from tests.contracts.desk import Desk
from tests.contracts.rigs import ProviderRig
from tests.integration.providers.bmcs import Bmcs
from tests.integration.providers.far_side import REGION, FarSide

MAKERS: dict[str, Callable[[str, dict[str, Any]], Provider]] = {"aws": make, "metal": make_redfish}


@dataclass
class Still:
    """A rig of which nothing is asked but its machine."""

    provider: Provider
    node: Node

    def nodes(self) -> list[Node]:
        return [self.node]


@dataclass(frozen=True)
class Attempt:
    ledger: Path
    options: dict[str, Any]
    node: Node
    verb: Verb
    incident: str

    def run(self) -> None:
        name = self.node.machine.provider
        still = Still(MAKERS[name](name, self.options), self.node)
        Desk(cast(ProviderRig, still), self.ledger, self.incident).act(self.verb)


def _run(attempt: Attempt, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    attempt.run()


def killed(far: FarSide | Bmcs, api: str, point: str, attempt: Attempt) -> int:
    """Runs it in a process that is killed with -9 `before` the call reaches the far side or `after` its effect."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    # The server that forks them has the environment of its own first day, without what this test has set.
    worker = context.Process(target=_run, args=(attempt, dict(os.environ)))
    started = threading.Event()

    def kill(call: object, where: str) -> bool:
        if where == point:
            assert started.wait(120)
            assert worker.pid
            os.kill(worker.pid, signal.SIGKILL)
            wait([worker.sentinel], 120)
        return where == point

    far.script(api, kill)
    worker.start()
    started.set()
    worker.join(240)
    assert worker.exitcode is not None
    return worker.exitcode


# What a worker has once it has made its first call.
_warm = access._session().create_client(
    "ec2", region_name=REGION, aws_access_key_id="warm", aws_secret_access_key="warm"
)
