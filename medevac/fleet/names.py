"""By which names one machine is called: of provider ids, addresses and host names. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

_SCALE_SET = re.compile(r"/virtualMachineScaleSets/(?P<set>[^/]+)/virtualMachines/(?P<number>[^/]+)$", re.IGNORECASE)
_VIRTUAL_MACHINE = re.compile(r"/virtualMachines/(?P<name>[^/]+)$", re.IGNORECASE)
_WITH_PORT = re.compile(r"(?:\[(?P<v6>[^\]\s/]+)\]|(?P<host>[^\]\[\s/:]+)):\d{1,5}")
_OF_ADDRESS = re.compile(r"ip-((?:\d{1,3}-){3}\d{1,3})(?:\.|$)")
_SHORT_LIVED = 6
"""Digits. A shorter number at a path's end is a place in a row, not a machine's own id."""
_INNER = frozenset({"corp", "internal", "intra", "lan", "local", "localdomain"})
"""Domains of one label. Any other such label may be a part of a machine's name."""
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def names_in(provider_id: str) -> tuple[str, ...]:
    """What senders call the machine of this id, the usual name first; empty where its end names no single machine.

    `i-0abc` of `aws:///us-east-1a/i-0abc`; of an instance of an Azure scale set `<set>_3`, as its metadata service and
    Event Grid say, and its computer's name, whose number has base 36: `<set>000003`.
    """
    path = provider_id.strip().rstrip("/")
    if m := _SCALE_SET.search(path):
        group, number = m["set"], m["number"]
        if number.lower().startswith(group.lower()):
            return (number,)
        computer = (f"{group}{_base36(int(number)):0>6}",) if number.isdecimal() and len(number) < 10 else ()
        return (f"{group}_{number}", *computer)
    if m := _VIRTUAL_MACHINE.search(path):
        return (m["name"],)
    parents, _, name = path.partition("://")[2].lstrip("/").rpartition("/") if "://" in path else path.rpartition("/")
    if not name or (parents and name.isdecimal() and len(name) < _SHORT_LIVED):
        return ()
    return (name,)


def canonical(name: str) -> str:
    """As names are compared: without blanks at the ends, lower case, an address in its shortest form."""
    name = name.strip().lower()
    if ":" in name:
        try:
            return str(ipaddress.ip_address(name))
        except ValueError:
            pass
    return name


def address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that it is, with or without a port; also as AWS writes it in a host's name (`ip-10-0-0-1`), which any
    network with that address may have."""
    for one in keys_of(name):
        try:
            return ipaddress.ip_address(m[1].replace("-", ".") if (m := _OF_ADDRESS.match(one)) else one)
        except ValueError:
            continue
    return None


def keys_of(subject: str) -> tuple[str, ...]:
    """What a sender's name may stand under, most exact first: itself, without its port, a provider id's own name."""
    name = canonical(subject)
    keys = [name]
    if match := _WITH_PORT.fullmatch(name):
        keys.append(canonical(match["v6"] or match["host"]))
    if "/" in name:
        keys.append(name.partition("://")[2].strip("/") if "://" in name else name.strip("/"))
        # A VM's name is one in its resource group, or its zone, alone: with them said, no other's will do.
        if "/virtualmachines/" not in name and not name.startswith("gce://"):
            keys += names_in(name)
    return tuple(dict.fromkeys(key for key in keys if key))


def host_and_domain(name: str) -> tuple[str, str] | None:
    """`gpu-1` and `example.internal` of `gpu-1.example.internal`; None for an address and for a name without domain."""
    labels = canonical(name).split(".")
    if len(labels) < 2 or labels[0] == "ocid1" or not all(map(_LABEL.fullmatch, labels)):
        return None
    if not labels[-1].isalpha() or (len(labels) == 2 and labels[-1] not in _INNER):
        return None
    return labels[0], ".".join(labels[1:])


def _base36(number: int) -> str:
    return "".join(_digits(number))[::-1] or "0"


def _digits(number: int) -> Iterator[str]:
    while number:
        number, digit = divmod(number, 36)
        yield "0123456789abcdefghijklmnopqrstuvwxyz"[digit]
