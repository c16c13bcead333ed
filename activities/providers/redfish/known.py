"""Which BMC a machine has, and what lies behind the reference to its credential."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from activities.inventory_file import read_inventory
from activities.ports import NotAllowed
from activities.providers.redfish.options import Bmc, Options, unencrypted
from medevac.fleet.inventory import Inventory, InventoryError, Record, Reference
from medevac.fleet.node import Node

MOST_BYTES = 4096


class Known:
    """By options and inventory. Thread-safe."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._inventory = Inventory()
        self._given = Inventory()
        self._read_of: list[tuple[int, int]] | None = None
        self._lock = threading.Lock()

    def bmc(self, node: Node) -> Bmc | None:
        """Raises `NotAllowed` where the inventory is wrong: a person must put it right."""
        named, machine = self._options.machines, node.machine
        if found := named.get(machine.id) or named.get(machine.serial or ""):
            return found
        joined = self._files().join(node)
        if joined.trouble:
            raise NotAllowed(f"inventory: {joined.trouble}")
        return self._of(joined.record) if joined.record is not None else None

    def take(self, inventory: Inventory) -> None:
        """Of the whole installation: where the options name no files of their own."""
        self._given = inventory

    def all(self) -> tuple[dict[str, Bmc], list[str]]:
        """All that can be used, and what is wrong with the rest. Raises `NotAllowed` where no file can be read."""
        found: dict[str, Bmc] = {}
        wrong = []
        for record in self._files().records:
            try:
                if bmc := self._of(record):
                    found[record.where] = bmc
            except NotAllowed as error:
                wrong.append(str(error))
        return {**found, **self._options.machines}, wrong

    def _of(self, record: Record) -> Bmc | None:
        if not record.bmc:
            return None
        address = urlsplit(record.bmc if "://" in record.bmc else f"https://{record.bmc}")
        try:
            bmc = Bmc(
                address=f"{address.scheme}://{address.netloc}",
                credential=str(Reference(*record.bmc_credential)) if record.bmc_credential else "",
                system=address.path.rstrip("/"),
                serial=record.serial,
            )
        except ValidationError as error:
            one = error.errors(include_input=False)[0]
            raise NotAllowed(f"{record.where}: BMC's {one['loc'][-1]}: {one['msg']}") from None
        if problem := unencrypted(bmc, self._options):
            raise NotAllowed(f"{record.where}: {problem}")
        return bmc

    def _files(self) -> Inventory:
        if not self._options.inventory:
            return self._given
        with self._lock:
            try:
                now = [
                    (found.st_mtime_ns, found.st_size) for path in self._options.inventory for found in [path.stat()]
                ]
                if now != self._read_of:
                    self._inventory = read_inventory(self._options.inventory, self._options.clusters)
                    self._read_of = now
            except (InventoryError, OSError) as error:
                raise NotAllowed(f"inventory: {str(error).splitlines()[0]}") from None
            return self._inventory


def secret(reference: str, secrets: Path) -> tuple[str, str]:
    """Name and password behind a reference, read afresh. Raises `NotAllowed`, which never holds any of them."""
    kind, _, where = reference.partition(":")
    if not where:
        raise NotAllowed("no credential is named for it: give the provider or the machine a `credential`")
    path = secrets / where if kind == "secret" else Path(where)
    try:
        if kind == "env":
            text = os.environ.get(where, "")
        elif path.is_dir():
            text = ":".join(_line(path / part) for part in ("username", "password"))
        else:
            text = _line(path)
    except (OSError, UnicodeDecodeError) as error:
        mount = f"; mount the Secret at {path}" if kind == "secret" else ""
        raise NotAllowed(f"credential {reference} can't be read: {type(error).__name__}{mount}") from None
    name, colon, password = text.partition(":")
    if not colon or not name:
        raise NotAllowed(f"credential {reference} is not there, or is no `username:password`")
    return name, password


def _line(path: Path) -> str:
    with path.open() as lines:
        return lines.read(MOST_BYTES).rstrip("\r\n")
