"""What a provider does while the proof of its call is waited for, and the release of what never came up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from activities.failures import redact
from activities.last_look import Frozen, last_look
from activities.ports import Cluster, HasForce, HasRelease, HasSteps, MachineState, NotSent, Provider, Unclear, Verb
from activities.precondition import Look
from activities.signatures import ProveRequest, Target
from activities.storage.intents import Intent
from activities.storage.ledger import Ledger
from medevac.fleet.node import Node
from medevac.incident import Line


class Hopeless(Exception):
    """The proof can't come any more; the message says why."""


def proceed(provider: object, look: Look, request: ProveRequest, node: Node) -> str:
    """The next calls of verbs that take several. Raises `Hopeless`, and whatever makes the next poll try again.

    A freeze holds them back as it does the first call, and only them: it is returned, in words, and the proof goes on.
    """
    if not isinstance(provider, HasSteps):
        return ""
    for verb in request.verbs:
        if frozen := look.frozen(request.pre, node):
            return frozen
        try:
            with look.again(request.pre, node):
                provider.proceed(verb, node, request.pre.incident)
        except Frozen as error:
            return str(error)
        except NotSent as error:
            if error.final:
                raise Hopeless(redact(str(error))) from None
            # Throttled: the next poll is soon enough.
    return ""


@dataclass(slots=True)
class Forcing:
    """The harder way of a verb that came to nothing: once, by a ledger line that is written before the call."""

    provider: object
    ledger: Ledger
    look: Look
    request: ProveRequest
    intent: Intent
    _tried: bool = False
    _ours: bool = False
    """The line is written, and it was this process that wrote it."""

    def step(self, node: Node) -> str:
        """The freeze that holds it back, or empty. Raises `Unreadable`. How the call went is for the ledger; what it
        did, for the proof."""
        if self._tried or not isinstance(self.provider, HasForce) or node.machine.boot_id != self.intent.boot_id:
            return ""
        tag, verb = self.request.pre.incident, self.intent.verb
        if not self.provider.overdue(verb, node, tag, self.intent.at):
            return ""
        if frozen := self.look.frozen(self.request.pre, node):
            return frozen
        self._ours = self._ours or bool(self._note("intent", f"{verb}: nothing came of it, so it is forced"))
        if not self._ours:
            self._tried = True  # by a worker before this one
            return ""
        try:
            with self.look.again(self.request.pre, node):
                last_look()
                said = str(self.provider.force(verb, node, tag))
        except Frozen as error:
            return str(error)
        except (NotSent, Unclear) as error:
            said = f"{'not sent' if isinstance(error, NotSent) else 'unclear'}: {redact(str(error))}"
        self._tried = True
        self._note("forced", said)
        return ""

    def _note(self, kind: str, text: str) -> int:
        return self.ledger.add_lines([Line(key=self.intent.key, at=self.intent.at, kind=kind, text=text)])


BY_NODE = frozenset({Verb.REBOOT})
"""Verbs that the node alone proves, by its boot id and its readiness: nobody else is asked about them."""


def state(provider: Provider, cluster: Cluster, request: ProveRequest, node: Node) -> MachineState:
    """As far as the proof of these verbs needs it. Raises `Unreadable`."""
    if BY_NODE.issuperset(request.verbs):
        return MachineState(exists=True, boot_id=node.machine.boot_id, ready=node.ready)
    return joined(cluster, provider.state(node, request.pre.incident))


def joined(cluster: Cluster, state: MachineState) -> MachineState:
    """The state with its successor as the cluster knows it: by name, else by machine id. Only a node has joined."""
    if state.successor is None and state.successor_id is None:
        return state
    if state.successor is not None:
        node = cluster.node(state.successor)
    else:
        node = next((one for one in cluster.nodes() if one.machine.id == state.successor_id), None)
    if node is None:
        return state.model_copy(update={"successor": None, "successor_ready": False})
    return state.model_copy(update={"successor": node.name, "successor_ready": state.successor_ready and node.ready})


MAY_RUN = "what was asked for may be running and could not be released"


class Released(NamedTuple):
    said: str
    """What happened, for people."""
    ended: tuple[str, ...] = ()
    joined: str = ""
    """The node that came of it: it stays."""
    sure: bool = True
    """False where what was asked for may be running, and be nobody's."""

    def proof(self) -> dict[str, JsonValue]:
        return {"nothing_left": self.sure and not self.joined, "joined": self.joined}


def release(provider: Provider, cluster: Cluster, look: Look, target: Target, node: Node) -> Released:
    """Ends what was asked for and never became a node, so that nobody pays for it."""
    tag = target.incident
    if not isinstance(provider, HasRelease):
        return Released(f"{MAY_RUN}: {provider.name} has no way to", sure=False)
    try:
        look.fence(target, node)
        there = frozenset(one.machine.id for one in cluster.nodes())
        with look.again(target, node):
            last_look()
            ended = provider.release(node, tag, there)
        if ended:
            return Released(f"released {', '.join(ended)}", ended)
        came = joined(cluster, provider.state(node, tag)).successor
    except Exception as error:
        why = error.message if isinstance(error, ApplicationError) else str(error)
        return Released(f"{MAY_RUN}: {redact(why)}", sure=False)
    if came is not None:
        return Released(f"the successor {came} has joined and stays; no check has passed on it", joined=came)
    return Released(f"nothing that was asked for under {tag} is found at {provider.name}")
