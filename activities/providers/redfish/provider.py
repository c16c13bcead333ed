"""`RedfishProvider`: the machine port on BMCs. Published as kind `redfish` of `medevac.providers`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import JsonValue, ValidationError

from activities import hurry
from activities.ports import NEEDS, MachineState, NotAllowed, NotSent, Unclear, Unreadable, Verb
from activities.providers.redfish.board import Board, Seen
from activities.providers.redfish.known import Known
from activities.providers.redfish.options import Bmc, Options
from activities.registry import ConfigurationError, complaints
from medevac.counted import some
from medevac.fleet.inventory import Inventory
from medevac.fleet.node import Capability, Machine, Node

POLL_S = 15.0
"""How often a BMC is asked while a proof is waited for that the node gives."""
OFF_S = 20.0
"""A machine that is off longer isn't in the middle of a restart: it is turned on."""
MANY = 4096
AT_ONCE = 256
"""BMCs that are signed in to at the same time: those that hang must not keep the others from being asked."""
ALL_S = 20.0
"""How long all BMCs together may take to be signed in to."""
FEW = 3
"""BMCs without an answer that are named."""
LOGS = 8
"""Event logs of one machine that are kept as evidence."""


@dataclass(slots=True)
class _Wait:
    """What this process has seen while it waited. Lost with it, which only makes it wait longer."""

    boot_id: str | None
    installation: str | None
    asked_at: float = float("-inf")
    late_at: float = float("-inf")
    off_since: float | None = None


class RedfishProvider:
    simulated = False

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self._known = Known(options)
        self._boards: dict[Bmc, Board] = {}
        self._waits: dict[tuple[str, str], _Wait] = {}
        self._inserted: dict[str, str] = {}
        """By machine: the image that this process last asked for."""
        self._lock = threading.Lock()

    # -- reading -----------------------------------------------------------------------------------------------

    def capabilities(self, node: Node) -> frozenset[Capability]:
        """Without a call. A machine that no inventory has is anybody's, and a reinstall must be provable."""
        if self._bmc(node) is None:
            return frozenset()
        can = {Capability.REBOOT, Capability.POWER_STATE}
        if self.options.reinstall != "no" and node.machine.installation:
            can.add(Capability.REINSTALL)
        if self.options.power_off:
            can.add(Capability.TERMINATE)
        return frozenset(can)

    def state(self, node: Node, tag: str) -> MachineState:
        seen = self._board(node).look()
        if not seen.there or self._stranger(node, seen):
            return MachineState(exists=False)
        return MachineState(
            exists=True,
            power=seen.power,
            image_mark=node.machine.installation,
            ready=seen.power == "on" and seen.healthy and seen.booted,
        )

    def locate(self, machine_id: str) -> Machine | None:
        """By its id, or by its serial."""
        for serial in (None, machine_id):
            machine = Machine(provider=self.name, id=machine_id, serial=serial, virtual=False)
            node = Node(cluster="", name="", machine=machine)
            if (bmc := self._bmc(node)) is None:
                continue
            seen = self._board_of(bmc).look()
            if serial is None and not bmc.serial and seen.is_machine(machine_id, "") is None:
                continue  # it may be known by its serial
            if not seen.there or self._stranger(node, seen):
                return None
            id = machine_id if serial is None else seen.uuid.lower()
            return machine.model_copy(update={"id": id, "serial": seen.serial or None})
        return None

    def take_inventory(self, inventory: Inventory) -> None:
        self._known.take(inventory)

    def missing_rights(self) -> list[str]:
        """Signs in at every BMC, in `ALL_S` at most. Raises `Unreadable` where not even their inventory can be read."""
        known, wrong = self._known.all()
        if not known and not wrong:
            return ["any BMC: name them in the inventory, or under `machines`"]
        answered: set[str] = set()
        denied: set[str] = set()
        silent: dict[str, str] = {}

        def check(id: str) -> None:
            try:
                self._board_of(known[id]).look()
            except NotAllowed as error:
                denied.add(id)
                wrong.append(f"BMC of {id}: {error}")
            except Unreadable as error:
                silent[id] = str(error)
            else:
                answered.add(id)

        hurry.each(check, sorted(known), AT_ONCE, ALL_S)
        return [*self._silent(sorted(set(known) - answered - denied), len(answered), dict(silent)), *sorted(wrong)]

    def _silent(self, ids: list[str], answered: int, why: Mapping[str, str]) -> list[str]:
        """In one line for all: a switch that is down must not bury what else is wrong."""
        if not ids:
            return []
        few = some([f"{id} ({why.get(id, 'no answer yet')})" for id in ids], FEW)
        return [f"{answered} BMCs answered, {len(ids)} didn't within {ALL_S:g} s: {few}"]

    def evidence(self, node: Node, incident: str) -> Iterator[tuple[str, bytes]]:
        board = self._board(node)
        seen = board.look()
        yield "system.json", _text(seen.system.json)
        above = [link["@odata.id"] for link in (seen.system.json.get("Links") or {}).get("ManagedBy") or ()]
        services = [seen.system.json, *(board.raw(path) for path in above)]
        logs = [log for one in services if "LogServices" in one for log in _members(board, one["LogServices"])]
        for n, path in enumerate(logs[:LOGS]):
            entries = board.raw(path).get("Entries")
            if entries:
                found = board.raw(f"{entries['@odata.id']}?$top={self.options.log_entries}")
                yield f"event-log-{n}.json", _text((found.get("Members") or [])[: self.options.log_entries])

    # -- acting ------------------------------------------------------------------------------------------------

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        try:
            if NEEDS[verb] not in self.capabilities(node):
                raise NotSent(f"{self.name} can't {verb} {node.name}", final=True)
            board = self._board(node)
            seen = board.look()
            self._not_a_stranger(node, seen)
            how = self._way(verb, node, board, seen)
        except Unreadable as error:
            raise NotSent(str(error), final=isinstance(error, NotAllowed)) from None
        if self.options.dry_run:
            raise NotSent(f"dry run, nothing was done: it would be {verb} by {how}", final=True)
        self._remember(node, tag)
        match verb:
            case Verb.TERMINATE if seen.power == "off":
                return f"{node.machine.id} is off already"
            case Verb.REINSTALL:
                return self._install(node, board, seen, how)
            case _:
                # What was prepared for a reinstall that never came must not happen by a reboot.
                left = self._left_in(node, board, seen)
                if seen.once:
                    board.boot_as_ever(seen)
                for image in left:
                    board.eject(seen, image)
                board.reset(seen, how)
                return f"{how} accepted"

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        if verb is Verb.TERMINATE or self.options.dry_run:
            return None
        wait, now = self._remember(node, tag), time.monotonic()
        if now - wait.asked_at < POLL_S:
            return None
        wait.asked_at = now
        board = self._board(node)
        seen = board.look()
        if not seen.there or self._stranger(node, seen):
            return None
        if seen.power == "off":
            wait.off_since = now if wait.off_since is None else wait.off_since
            if now - wait.off_since < OFF_S:
                return None
            board.reset(seen, "On")
            return "turned on"
        wait.off_since = None
        installed = node.machine.installation != wait.installation and node.machine.boot_id != wait.boot_id
        if verb is Verb.REINSTALL and self.options.reinstall == "media" and installed:
            for image in board.inserted(seen):
                board.eject(seen, image)
            wait.installation, wait.boot_id = node.machine.installation, node.machine.boot_id
            return "the image is ejected"
        return None

    def overdue(self, verb: Verb, node: Node, tag: str, since: datetime) -> bool:
        """Whether it should long have gone down, and surely hasn't."""
        if (datetime.now(UTC) - since).total_seconds() < self.options.graceful_s or self.options.dry_run:
            return False
        wait, now = self._remember(node, tag), time.monotonic()
        if now - wait.late_at < POLL_S:
            return False
        wait.late_at = now
        seen = self._board(node).look()
        if seen.power != "on" or not seen.there or self._stranger(node, seen):
            return False
        # A node that nobody hears may be about to come up: forced now, it would be hit in mid boot.
        return verb is Verb.TERMINATE or node.reachable or (seen.reset_at is not None and seen.reset_at < since)

    def force(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        board = self._board(node)
        try:
            seen = board.look()
            self._not_a_stranger(node, seen)
            ways = board.resets(seen)
        except Unreadable as error:
            raise NotSent(str(error)) from None
        how = "ForceOff" if verb is Verb.TERMINATE else _first(ways, "ForceRestart", "PowerCycle")
        board.reset(seen, how)
        return f"{how} accepted"

    # -- parts -------------------------------------------------------------------------------------------------

    def _way(self, verb: Verb, node: Node, board: Board, seen: Seen) -> str:
        """Nicely where somebody is there who can hear it."""
        if seen.power == "off" and verb is not Verb.TERMINATE:
            return "On"
        ways = board.resets(seen)
        if verb is Verb.TERMINATE:
            return _first(ways, *(("GracefulShutdown",) if node.reachable else ()), "ForceOff")
        gentle = ("GracefulRestart", "GracefulShutdown") if node.reachable else ()
        return _first(ways, *gentle, "ForceRestart", "PowerCycle")

    def _install(self, node: Node, board: Board, seen: Seen, how: str) -> str:
        """Until the reset nothing has happened to the machine: whatever fails before it may be begun anew."""
        image = node.machine.image or self.options.image
        target: Literal["Pxe", "Cd"] = "Pxe" if self.options.reinstall == "pxe" else "Cd"
        if target == "Pxe" and node.machine.image:
            raise NotSent(f"the network decides what is installed: {node.machine.image} can't be ordered", final=True)
        if target == "Cd" and (not image or "@" in image or "://" not in image):
            raise NotSent(f"{image or 'nothing'} is no address of an image to insert", final=True)
        prepared = _Prepared()
        try:
            if target == "Cd":
                self._note(node, image)
                with prepared.undone_by("its image may still be in the drive", lambda: board.eject(seen, image)):
                    board.insert(seen, image)
            with prepared.undone_by("its one-time boot may still be armed", lambda: board.boot_as_ever(seen)):
                board.boot_once(seen, target)
        except Unclear as error:
            prepared.undo(error)
            raise NotSent(f"not begun: {error}") from None
        except NotSent as error:
            prepared.undo(error)
            raise
        try:
            board.reset(seen, how)
        except NotSent as error:
            prepared.undo(error)
            raise
        return f"{how} accepted"

    def _left_in(self, node: Node, board: Board, seen: Seen) -> list[str]:
        """Images of ours in its drives, by their addresses: with a firmware that boots from a CD first, any boot would
        install them. What an armed boot would start counts as ours, as the boot does. Raises `NotSent`."""
        if self.options.reinstall != "media":
            return []
        try:
            found = board.inserted(seen)
        except Unreadable as error:
            raise NotSent(f"what a reboot would start can't be read: {error}") from None
        ours = {self.options.image, node.machine.image, self._inserted.get(node.machine.id)}
        return [image for image in found if seen.once == "Cd" or image in ours]

    def _note(self, node: Node, image: str) -> None:
        with self._lock:
            if len(self._inserted) > MANY:
                self._inserted.clear()
            self._inserted[node.machine.id] = image

    def _stranger(self, node: Node, seen: Seen) -> str:
        """Who is there in place of the node's machine, in words; empty where it is the one. Raises `NotAllowed`."""
        bmc = self._bmc(node)
        serial = (bmc.serial if bmc else "") or node.machine.serial or ""
        match seen.is_machine(node.machine.id, serial):
            case True:
                return ""
            case None:
                raise NotAllowed(
                    f"nothing tells whether it is {node.machine.id}: write its `serial` into the inventory"
                )
            case _:
                return f"the machine is {seen.uuid or '?'}, serial {seen.serial or '?'}, not {node.machine.id} {serial}"

    def _not_a_stranger(self, node: Node, seen: Seen) -> None:
        """Raises `NotSent`, or `NotAllowed` where nothing tells."""
        other = self._stranger(node, seen) if seen.there else "no machine is there"
        if other:
            raise NotSent(f"its BMC says: {other}", final=True)

    def _remember(self, node: Node, tag: str) -> _Wait:
        with self._lock:
            if len(self._waits) > MANY:
                self._waits.clear()
            fresh = _Wait(node.machine.boot_id, node.machine.installation)
            return self._waits.setdefault((node.machine.id, tag), fresh)

    def _bmc(self, node: Node) -> Bmc | None:
        return self._known.bmc(node)

    def _board(self, node: Node) -> Board:
        if (bmc := self._bmc(node)) is None:
            raise NotAllowed(f"no BMC is known for {node.machine.id or node.name}: name it in the inventory")
        return self._board_of(bmc)

    def _board_of(self, bmc: Bmc) -> Board:
        with self._lock:
            return self._boards.setdefault(bmc, Board(bmc, self.options))


class _Prepared:
    """What was done for a boot that isn't yet ordered. Left so, the next boot, whoever's it is, would install."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, Callable[[], None]]] = []

    @contextmanager
    def undone_by(self, else_: str, undo: Callable[[], None]) -> Iterator[None]:
        """`else_` tells what stands where `undo` doesn't work. A step that was surely not made isn't undone."""
        try:
            yield
        except NotSent:
            raise
        except BaseException:
            self._steps.append((else_, undo))
            raise
        self._steps.append((else_, undo))

    def undo(self, why: NotSent | Unclear) -> None:
        """All of it, the last first. Raises `Unclear` where something may be left."""
        left = []
        for else_, undo in reversed(self._steps):
            try:
                undo()
            except (NotSent, Unclear) as error:
                left.append(f"{else_}: {error}")
        if left:
            raise Unclear(f"{why}; {'; '.join(left)}") from None


def _first(ways: Iterable[str], *wanted: str) -> str:
    offered = set(ways)
    found = next((how for how in wanted if how in offered), None)
    if found is None:
        raise NotSent(f"its BMC offers none of {', '.join(wanted)}", final=True)
    return found


def _members(board: Board, collection: dict[str, Any]) -> list[str]:
    return [one["@odata.id"] for one in board.raw(collection["@odata.id"]).get("Members") or ()]


def _text(found: object) -> bytes:
    return json.dumps(found, indent=1, default=str).encode()


def make(name: str, options: dict[str, Any]) -> RedfishProvider:
    """Raises `ConfigurationError`."""
    try:
        return RedfishProvider(name, Options.model_validate(options))
    except ValidationError as error:
        said = complaints(error)
        raise ConfigurationError(f"provider {name}: {said}") from None
