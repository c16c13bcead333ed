"""Rungs that are carried out from within a node, by a privileged pod that is pinned to it (programs/act.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pydantic import JsonValue, ValidationError

from activities.clock import Clock, utcnow
from activities.kubernetes import jobs, pausing, rights
from activities.kubernetes.client import Client
from activities.kubernetes.jobs import Reading, Task
from activities.kubernetes.options import NodeSideOptions
from activities.kubernetes.programs import program
from activities.last_look import Frozen, last_look
from activities.ports import NEEDS, MachineState, NotSent, Unclear, Unreadable, Verb
from medevac.fleet.node import Capability, Node
from medevac.incident import StepKey
from medevac.model import Model

VERB = "medevac.dev/verb"


class Answer(Model):
    """What became of an order; its exit code says whether anything was done."""

    mark: str = ""
    """Of the effect itself: a unit's new invocation, or which GPUs were reset when."""
    reason: str = ""


@dataclass(slots=True)
class NodeSide:
    client: Client
    options: NodeSideOptions
    clock: Clock = utcnow

    def capabilities(self, node: Node) -> frozenset[Capability]:
        """A node whose kubelet is silent carries out nothing."""
        options, can = self.options, set[Capability]()
        if not node.ready or node.machine.boot_id is None:
            return frozenset()
        if options.agents:
            can.add(Capability.RESTART_AGENT)
        if options.reset_gpu and node.gpus and (options.reset_gpu.virtual or not node.machine.virtual):
            can.add(Capability.RESET_GPU)
        if options.reboot:
            can.add(Capability.REBOOT)
        return frozenset(can)

    def do(self, verb: Verb, node: Node, key: StepKey) -> JsonValue:
        if NEEDS[verb] not in self.capabilities(node):
            raise NotSent(f"nothing within {node.name} can {verb.value.replace('_', ' ')} it now", final=True)
        task = self._task(verb, node, key)
        if verb is Verb.RESET_GPU and self.options.reset_gpu:
            last_look()
            pausing.pause(self.client, node, self.options.reset_gpu.pause)
        try:
            last_look()
            new = jobs.create(self.client, self.options, task)
        except NotSent as error:
            if error.final or isinstance(error, Frozen):
                self._resume(node.name)
            raise
        return f"Job {self.options.namespace}/{task.name}{'' if new else ', begun before'}"

    def state(self, node: Node, key: StepKey) -> MachineState:
        reading = self._read(node, key)
        answer = _answer(reading)
        mark = answer.mark if answer and reading.code == 0 else ""
        return MachineState(
            exists=True, power="on" if node.ready else "unknown", boot_id=node.machine.boot_id, ready=node.ready,
            gpu_reset_mark=mark or None, told_by="node",
        )  # fmt: skip

    def proceed(self, verb: Verb, node: Node, key: StepKey) -> str | None:
        """What was stopped for a reset runs again after it. Raises `NotSent` where the proof can't come any more."""
        reading = self._read(node, key)
        if reading.state not in ("over", "absent"):
            return None
        said = "what was paused runs again" if verb is Verb.RESET_GPU and self._resume(node.name) else None
        if (why := _hopeless(verb, reading)) is not None:
            raise NotSent(why, final=True)
        return said

    def resume(self, node: str) -> bool:
        """What was paused runs again; True when something was. Raises `NotSent`, `Unclear` or `Unreadable`."""
        return pausing.resume(self.client, node)

    def missing_rights(self) -> list[str]:
        return rights.missing_of(self.client, rights.JOBS, self.options.namespace)

    def _resume(self, node: str) -> bool:
        """A courtesy here: lifting the mark does it for sure."""
        try:
            return self.resume(node)
        except (NotSent, Unclear, Unreadable):
            return False

    def _read(self, node: Node, key: StepKey) -> Reading:
        return jobs.read(self.client, self.options, Task(kind="act", key=str(key), node=node.name, command=()))

    def _task(self, verb: Verb, node: Node, key: StepKey) -> Task:
        options, reset, reboot = self.options, self.options.reset_gpu, self.options.reboot
        task = Task(
            kind="act", key=str(key), node=node.name, command=("python3", "-c", program("act.py")),
            privileged=True, notes={VERB: verb.value},
        )  # fmt: skip
        order: dict[str, JsonValue] = {
            "verb": verb.value, "token": str(key), "name": task.name, "boot_id": node.machine.boot_id,
            # A pod that could start only hours later finds a world that nobody made the plan for.
            "not_after": self.clock().timestamp() + options.start_s,
        }  # fmt: skip
        if verb is Verb.RESTART_AGENT:
            order["units"] = list(options.agents)
        if verb is Verb.RESET_GPU and reset:
            order |= {"stop": list(reset.stop), "linked": reset.linked, "driver_root": reset.driver_root,
                      "wait_s": reset.wait_s, "reset_s": reset.reset_s}  # fmt: skip
        if verb is Verb.REBOOT and reboot:
            order |= {"hang_s": reboot.hang_s, "sync_s": 1.0}
        return replace(task, env={"MEDEVAC_ORDER": json.dumps(order)})


def _answer(reading: Reading) -> Answer | None:
    if reading.code is None or not reading.message:
        return None
    try:
        return Answer.model_validate_json(reading.message)
    except ValidationError:
        return None


def _hopeless(verb: Verb, reading: Reading) -> str | None:
    """Why the effect has not come and won't; None where it has, or may."""
    if reading.state == "absent":
        return f"{reading.why}: it was never begun, or somebody removed it"
    answer = _answer(reading)
    if answer is not None:
        if reading.code == 0:
            return None
        return f"{'refused, nothing was done' if reading.code == 3 else 'in vain'}: {answer.reason}"
    if not reading.started:
        return f"its pod never started: {reading.why or 'nobody says why'}"
    if verb is Verb.REBOOT:
        return None  # Its pod died with the node, as it should: only the next boot says more.
    return f"it began and did not say how it ended: {reading.why or 'nobody says why'}"
