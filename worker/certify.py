"""A provider proved on one real machine of this installation: read, rebooted with proof, and reinstalled if wanted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import JsonValue

from activities.failures import redact
from activities.last_look import Frozen, last_look, looking
from activities.ports import (
    Cluster,
    HasEvidence,
    HasLocate,
    HasRights,
    HasSteps,
    HasUnaskedRights,
    MachineState,
    NotSent,
    Provider,
    Unclear,
    Unreadable,
    Verb,
)
from activities.proof import World, another_machine, missing
from activities.registry import NotConfigured, Registry
from activities.storage.certificates import CERTIFY, Certificate
from medevac.faults.classes import FaultClass
from medevac.fleet.fence import Fence
from medevac.fleet.node import Capability, Node
from medevac.incident import StepKey
from medevac.model import Model
from medevac.policy.plan import Rung
from worker.stores import Stores

POLL_S = 5.0
EFFECTS = {Verb.REBOOT: Rung.REBOOT, Verb.REINSTALL: Rung.REINSTALL}
"""What is done, in this order. The rungs that end a machine need no proof: no policy lets them go without asking."""
NOBODY = "medevac-certify-nobody"
"""Id and serial that no machine has."""
LOOKS = 3
"""How often a machine is looked at after its repeated call, a poll apart."""


class Unfit(Exception):
    """Nothing was done to the machine; the message says why, and what to do first."""


class Step(Model):
    name: str
    passed: bool | None
    """None = left out."""
    seen: str


class _Failed(Exception):
    """What the step saw instead of its proof."""


@dataclass(frozen=True, slots=True)
class Certifier:
    registry: Registry
    stores: Stores
    provider: Provider
    cluster: Cluster
    node: Node
    """As found when it was asked for."""
    deadline_s: float = 1_800.0
    poll_s: float = POLL_S
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    @classmethod
    def of(
        cls, registry: Registry, stores: Stores, name: str, machine_id: str, deadline_s: float = 1_800.0
    ) -> Certifier:
        """Raises `Unfit` where there is no such machine, or work or an incident is on it, and `Unreadable`."""
        try:
            provider = registry.provider(name)
        except NotConfigured as error:
            raise Unfit(str(error)) from None
        for cluster in registry.clusters():
            for node in cluster.nodes():
                if node.machine.id == machine_id:
                    found = cls(registry, stores, provider, cluster, node, deadline_s)
                    found.fit()
                    return found
        raise Unfit(f"no node of any cluster stands on machine {machine_id}; `medevac inventory check` reads them")

    def fit(self) -> None:
        """Raises `Unfit`. Asked again right before each call that changes something."""
        name = f"{self.node.cluster}/{self.node.name}"
        node = self.cluster.node(self.node.name)
        if node is None or node.machine.id != self.node.machine.id:
            raise Unfit(f"{name} stands on another machine now")
        if node.machine.provider != self.provider.name:
            raise Unfit(f"{name} is a machine of {node.machine.provider}, not of {self.provider.name}")
        if node.roles:
            raise Unfit(f"{name} is {', '.join(node.roles)}; take a machine that nobody needs")
        if node.marked_by:
            raise Unfit(f"{name} is in incident {node.marked_by}; take another machine, or wait for its end")
        if node.schedulable:
            raise Unfit(f"{name} takes work; cordon it first, so that nothing comes while it is proved")
        pods = [f"{pod.namespace}/{pod.name}" for pod in self.cluster.pods(node.name) if pod.tier != "daemon"]
        if pods:
            raise Unfit(f"{len(pods)} pods run on {name} ({', '.join(pods[:3])}); empty it first")
        if (fence := self._fence(node)) is not None:
            raise Unfit(fence.said)

    def _fence(self, node: Node) -> Fence | None:
        return self.stores.fences.blocking(node.cluster, node.name, node.pool, node.machine.provider)

    def _look(self) -> None:
        try:
            fence = self._fence(self.node)
        except Unreadable as error:
            raise Frozen(str(error)) from None
        if fence is not None:
            raise Frozen(fence.said)

    def run(self, by: str, destructive: bool) -> Iterator[Step]:
        """Each step as it ends, and last the certificate's own word; what was seen is stored, also where it failed."""
        at = self.now()
        tag = f"certify-{self.provider.name}-{at:%Y%m%d%H%M%S}"
        steps: list[Step] = []
        for step in self._steps(tag, destructive):
            steps.append(step)
            yield step
            if step.passed is False:
                break
        proved = [step.name for step in steps if step.passed and step.name in EFFECTS]
        passed = bool(proved) and all(step.passed is not False for step in steps)
        machine = self.node.machine.id
        proof: dict[str, JsonValue] = {
            "steps": [step.model_dump(mode="json") for step in steps], "node": f"{self.node.cluster}/{self.node.name}",
            "form": self.registry.form(self.provider.name),
        }  # fmt: skip
        self.stores.certificates.add(
            Certificate(provider=self.provider.name, at=at, by=by, machine_id=machine, passed=passed, proof=proof)
        )
        why = f" to {', '.join(proved)}" if proved else ": no call that changes a machine was proved"
        said = f"is certified{why}" if passed else f"is not certified{'' if proved else why}"
        yield Step(name="certificate", passed=passed, seen=f"{self.provider.name} {said}")

    def _steps(self, tag: str, destructive: bool) -> Iterator[Step]:
        provider, can = self.provider, self.provider.capabilities(self.node)
        yield (
            self._step("rights", self._rights) if isinstance(provider, HasRights) else _left_out("rights", "asks none")
        )
        if isinstance(provider, HasLocate):
            yield self._locate(provider)
        else:
            yield _left_out("locate", "can't look a machine up by its id")
        if Capability.POWER_STATE in can:
            yield self._step("power state", lambda: self._power(tag))
        else:
            yield _left_out("power state", "can't tell it")
        if isinstance(provider, HasEvidence):
            yield self._step("evidence", lambda: self._evidence(provider, tag))
        else:
            yield _left_out("evidence", "has none")
        keeps_disks = {Verb.REBOOT} if Capability.REBOOT_MOVES not in can else frozenset[Verb]()
        wanted = [verb for verb in EFFECTS if Capability(verb.value) in can and (destructive or verb in keeps_disks)]
        if wanted:
            yield self._step("another machine", lambda: self._another(wanted[0], tag))
        for verb in EFFECTS:
            if verb in wanted:
                yield self._step(verb, lambda verb=verb: self._effect(verb, tag))  # type: ignore[misc]
                yield self._step(f"{verb} repeated", lambda verb=verb: self._repeat(verb, tag))  # type: ignore[misc]
            elif Capability(verb.value) in can:
                yield _left_out(verb, "only with --destructive")
            else:
                yield _left_out(verb, "can't do it to this machine")

    def _step(self, name: str, look: Callable[[], str]) -> Step:
        try:
            return Step(name=name, passed=True, seen=look())
        except (_Failed, Unfit) as error:
            return Step(name=name, passed=False, seen=str(error))
        except (NotSent, Unclear, Unreadable) as error:
            return Step(name=name, passed=False, seen=redact(str(error), 300))

    # -- steps -------------------------------------------------------------------------------------------------

    def _rights(self) -> str:
        lacks = self.provider.missing_rights() if isinstance(self.provider, HasRights) else []
        if lacks:
            raise _Failed("; ".join(lacks))
        unasked = self.provider.unasked_rights() if isinstance(self.provider, HasUnaskedRights) else []
        return "; ".join(("nothing is missing", *unasked))

    def _locate(self, provider: HasLocate) -> Step:
        machine = self.node.machine.id
        try:
            found = provider.locate(machine)
        except Unreadable as error:
            return Step(name="locate", passed=False, seen=redact(str(error), 300))
        if found is None:  # also of one that has no way to look
            return _left_out("locate", "doesn't know it by its id alone")
        return Step(name="locate", passed=found.id == machine, seen=found.id)

    def _power(self, tag: str) -> str:
        state = self.provider.state(self.node, tag)
        if not state.exists or state.power != "on":
            raise _Failed(f"the node is up, and it says {'power ' + state.power if state.exists else 'gone'}")
        return "on"

    def _evidence(self, provider: HasEvidence, tag: str) -> str:
        sizes = [f"{name} ({len(piece)} bytes)" for name, piece in provider.evidence(self.node, tag)]
        if not sizes:
            raise _Failed("nothing came")
        return ", ".join(sizes)

    def _another(self, verb: Verb, tag: str) -> str:
        """A call for a machine that isn't there, under the node's name: the node's own must not be hit by it."""
        machine = self.node.machine.model_copy(update={"id": NOBODY, "serial": NOBODY})
        began = time.monotonic()
        while True:
            self.fit()
            try:
                with looking(self._look):
                    self.provider.do(verb, self.node.model_copy(update={"machine": machine}), tag)
            except NotSent as error:
                if error.final:
                    return f"refused: {redact(str(error), 200)}"
                if time.monotonic() - began >= self.deadline_s:
                    raise
                time.sleep(min(error.retry_after_s or self.poll_s, self.deadline_s))
            else:
                raise _Failed(f"it took a {verb} of machine {NOBODY}, which isn't there; nobody knows whom that hit")

    def _repeat(self, verb: Verb, tag: str) -> str:
        """The same key again, as a worker comes that hasn't heard of the first: nothing more may happen."""
        node = self.cluster.node(self.node.name)
        was = self._shown(node, tag)
        if self._call(verb, node or self.node, tag, time.monotonic()):
            raise _Failed("it was called again under the same key")
        for _ in range(LOOKS):
            time.sleep(self.poll_s)
            if (now := self._shown(self.cluster.node(self.node.name), tag)) != was:
                raise _Failed(f"after one call its effect came twice: {was}, then {now}")
        return f"not called again; {was}"

    def _shown(self, node: Node | None, tag: str) -> str:
        """What a second effect would change."""
        state = self.provider.state(node or self.node, tag)
        boot = node.machine.boot_id if node else "none"
        return f"boot {boot}, image {state.image_mark or '?'}"

    def _effect(self, verb: Verb, tag: str) -> str:
        began = time.monotonic()
        node = self.cluster.node(self.node.name) or self.node
        was = self.provider.state(node, tag)
        self._call(verb, node, tag, began)
        lacks = "nothing could be read"
        while time.monotonic() - began < self.deadline_s:
            lacks = self._lacks(verb, node, tag, was)
            if not lacks:
                now = self.cluster.node(node.name)
                boot = f"boot {node.machine.boot_id} → {now.machine.boot_id if now else '?'}"
                return f"proved in {time.monotonic() - began:.0f} s: {boot}"
            time.sleep(self.poll_s)
        raise _Failed(f"no proof within {self.deadline_s:g} s: {lacks}")

    def _call(self, verb: Verb, node: Node, tag: str, began: float) -> bool:
        """Once for its key, as medevac itself calls: by an intent that stands before it. False: it stood already."""
        key, intents = StepKey(incident=tag, step=f"act-{verb}"), self.stores.intents
        while (stands := intents.get(key)) is None or stands.void:
            self.fit()
            machine = node.machine
            _, new = intents.begin(
                key, verb=verb, cluster=node.cluster, node=node.name, machine_id=machine.id, boot_id=machine.boot_id,
                rung=EFFECTS[verb], fault=CERTIFY, fault_class=FaultClass.RECORD, at=self.now(),
            )  # fmt: skip
            if not new:
                return False
            try:
                with looking(self._look):
                    self.provider.do(verb, node, tag)
            except NotSent as error:
                intents.void(key, redact(str(error)), self.now())
                if error.final or time.monotonic() - began >= self.deadline_s:
                    raise
                time.sleep(min(error.retry_after_s or self.poll_s, self.deadline_s))
            except Unclear:
                return True  # its proof is waited for; it is never called again
            else:
                return True
        return False

    def _lacks(self, verb: Verb, node: Node, tag: str, was: MachineState) -> str:
        """What is missing for the proof; empty = proved."""
        try:
            now = self.cluster.node(node.name)
            ours = now if now is not None and now.machine.id == node.machine.id else node
            if isinstance(self.provider, HasSteps):
                with looking(self._look):
                    last_look()
                    self.provider.proceed(verb, ours, tag)
            world = World(now, self.provider.state(ours, tag))
        except Unreadable as error:
            return f"unreadable: {redact(str(error), 200)}"
        except NotSent as error:
            if error.final:
                raise
            return redact(str(error), 200)
        return another_machine(node.identity, world) or missing(verb, node.identity, was, world) or ""


def _left_out(name: str, why: str) -> Step:
    return Step(name=name, passed=None, seen=why)
