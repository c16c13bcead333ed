"""One machine as its BMC shows it: every request is bounded in time and made once, one at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar
from uuid import UUID

import requests
import sushy  # type: ignore[import-untyped]
from sushy.auth import BasicAuth  # type: ignore[import-untyped]
from sushy.connector import Connector  # type: ignore[import-untyped]
from sushy.exceptions import SushyError  # type: ignore[import-untyped]
from sushy.resources.system.system import System  # type: ignore[import-untyped]

from activities.last_look import last_look
from activities.ports import NotSent, Unreadable
from activities.providers.redfish import errors
from activities.providers.redfish.known import secret
from activities.providers.redfish.options import Bmc, Options

T = TypeVar("T")

ON = frozenset({"On", "PoweringOn"})
RUNS = frozenset({"", "None", "OSRunning", "OEM"})
"""Boot progress of a machine that isn't about to come up; most BMCs say nothing of it."""
MEDIA = (sushy.VirtualMediaType.CD, sushy.VirtualMediaType.DVD)
CAUGHT = (SushyError, requests.RequestException, KeyError, TypeError, ValueError, AttributeError)
"""What sushy raises, and what it comes to where a BMC's answer is not what it should be."""


class Once(Connector):  # type: ignore[misc]
    """Makes each request one time, and only to whom the configuration names."""

    def __init__(self, bmc: Bmc, options: Options) -> None:
        super().__init__(
            bmc.address,
            verify=str(options.ca) if options.verify and options.ca else options.verify,
            response_callback=self._heard,
            server_side_retries=1,  # of the transport: how often it is tried in all
            default_request_timeout=options.read_timeout_s,
            connect_timeout=options.connect_timeout_s,
        )
        self._session.trust_env = False
        self.retry_after_s: float | None = None
        """What the last answer wished for."""

    def _heard(self, response: requests.Response) -> None:
        said = response.headers.get("Retry-After", "")
        self.retry_after_s = float(said) if said.isdigit() else None
        # Its BMC was asked to hang up, and may be about to: what is sent on such a line is neither done nor refused.
        self._session.close()

    def _op(self, method: str, path: str = "", **given: Any) -> Any:
        return super()._op(method, path, **{**given, "server_side_retries_left": 0})


@dataclass(frozen=True, slots=True)
class Seen:
    """The machine at one moment."""

    system: System
    power: Literal["on", "off", "unknown"]
    there: bool
    uuid: str
    serial: str
    healthy: bool
    booted: bool
    once: str
    """From what it would boot next time, and only then; empty = from where it always does."""
    reset_at: datetime | None
    """By the BMC's clock; None where it doesn't say."""

    def is_machine(self, id: str, serial: str) -> bool | None:
        """Whether it is the one with this firmware UUID, or serial; None where nothing can be compared."""
        said = [_same_uuid(id, self.uuid), self.serial.casefold() == serial.casefold() if serial else None]
        known = [one for one in said if one is not None]
        return all(known) if known else None


class Board:
    def __init__(self, bmc: Bmc, options: Options) -> None:
        self._bmc = bmc
        self._options = options
        self._root: sushy.Sushy | None = None
        self._path = bmc.system
        self._lock = threading.Lock()

    # -- reading -----------------------------------------------------------------------------------------------

    def look(self) -> Seen:
        """Raises `Unreadable`."""
        with self._reading("its state"):
            system = self._system()
            raw = system.json
            boot, status = raw.get("Boot") or {}, raw.get("Status") or {}
            power = str(raw.get("PowerState") or "")
            once = str(boot.get("BootSourceOverrideTarget") or "")
            return Seen(
                system=system,
                power="on" if power in ON else "off" if power == "Off" else "unknown",
                there=status.get("State") != "Absent",
                uuid=str(raw.get("UUID") or ""),
                serial=str(raw.get("SerialNumber") or ""),
                healthy=status.get("Health") != "Critical",
                booted=str((raw.get("BootProgress") or {}).get("LastState") or "") in RUNS,
                once=once if boot.get("BootSourceOverrideEnabled") == "Once" and once != "None" else "",
                reset_at=_time(raw.get("LastResetTime")),
            )

    def resets(self, seen: Seen) -> frozenset[str]:
        """Ways to reset it that its BMC knows. Raises `Unreadable`."""
        with self._reading("what it can"):
            return frozenset(one.value for one in seen.system.get_allowed_reset_system_values())

    def raw(self, path: str) -> dict[str, Any]:
        """Raises `Unreadable`."""
        with self._reading(path):
            found = self._connected()._conn.get(path).json()
            return found if isinstance(found, dict) else {}

    def inserted(self, seen: Seen) -> list[str]:
        """Images in its virtual drives. Raises `Unreadable`."""
        with self._reading("its virtual media"):
            return [str(one.image) for one in _drives(seen.system) if one.inserted and one.image]

    # -- writing -----------------------------------------------------------------------------------------------

    def reset(self, seen: Seen, how: str) -> None:
        """Raises `NotSent` or `Unclear`."""

        def change() -> None:
            last_look()
            seen.system.reset_system(sushy.ResetType(how))

        self._write(f"Reset {how}", change)

    def boot_once(self, seen: Seen, target: str) -> None:
        """From `Pxe` or `Cd`, the next time only. Twice is once. Raises `NotSent` or `Unclear`."""

        def change() -> None:
            last_look()
            seen.system.set_system_boot_options(
                target=sushy.BootSource(target), enabled=sushy.BootSourceOverrideEnabled.ONCE
            )

        self._write(f"boot once from {target}", change)

    def boot_as_ever(self, seen: Seen) -> None:
        """Raises `NotSent` or `Unclear`."""
        self._write(
            "boot as ever",
            lambda: seen.system.set_system_boot_options(enabled=sushy.BootSourceOverrideEnabled.DISABLED),
        )

    def insert(self, seen: Seen, image: str) -> None:
        """In place of what was in the drive. Twice is once. Raises `NotSent` or `Unclear`."""

        def change() -> None:
            drive = next(iter(_drives(seen.system)), None)
            if drive is None:
                raise NotSent("its BMC has no virtual drive for a CD", final=True)
            if drive.inserted and drive.image == image:
                return
            last_look()
            if drive.inserted:
                drive.eject_media()
            drive.insert_media(image)

        self._write("insert the image", change)

    def eject(self, seen: Seen, image: str) -> None:
        """Raises `NotSent` or `Unclear`."""

        def change() -> None:
            for drive in _drives(seen.system):
                drive.refresh(force=True)  # An insertion without an answer is none that was seen.
                if drive.inserted and drive.image == image:
                    drive.eject_media()

        self._write("eject the image", change)

    # -- parts -------------------------------------------------------------------------------------------------

    def _system(self) -> System:
        root = self._connected()
        found = root.get_system(self._path or None)
        self._path = found.path
        return found

    def _connected(self) -> sushy.Sushy:
        if self._root is None:
            name, password = secret(self._bmc.credential or self._options.credential, self._options.secrets)
            self._root = sushy.Sushy(
                self._bmc.address, auth=BasicAuth(name, password), connector=Once(self._bmc, self._options)
            )
        return self._root

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One after the other: many BMCs drop what comes at once."""
        if not self._lock.acquire(timeout=2 * self._options.read_timeout_s):
            raise Unreadable(f"{self._bmc.address} is asked other things")
        try:
            yield
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        with self._turn():
            try:
                yield
            except CAUGHT as error:
                self._root = None  # other credentials may be there the next time
                raise errors.of_a_read(error, f"{self._bmc.address}, {what}") from None

    def _write(self, what: str, change: Callable[[], None]) -> None:
        said = f"{self._bmc.address}, {what}"
        try:
            with self._turn():
                try:
                    change()
                except CAUGHT as error:
                    wish = self._root._conn.retry_after_s if self._root else None
                    raise errors.of_a_write(error, said, wish) from None
        except Unreadable as error:
            raise NotSent(f"{said}: {error}") from None


def _drives(system: System) -> list[Any]:
    """Its own, or those that its BMC has for it."""
    try:
        found = [system.virtual_media]
    except SushyError:
        found = [manager.virtual_media for manager in system.managers]
    return [
        one for every in found for one in every.get_members() if any(kind in MEDIA for kind in one.media_types or ())
    ]


def _same_uuid(id: str, said: str) -> bool | None:
    """Firmware of different ages writes the first half of one UUID in different orders."""
    try:
        ours, theirs = UUID(id), UUID(said)
    except ValueError:
        return None
    return ours in (theirs, UUID(bytes=theirs.bytes_le))


def _time(said: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(said))
    except ValueError:
        return None
    return found if found.tzinfo else None
