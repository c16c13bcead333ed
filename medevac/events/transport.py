"""What the transport knows and the payload doesn't: on which machine, in which cluster and boot it was read, and how
the command ended whose output it is (`X-Medevac-Exit-Code`).

Many outputs name no host (`dcgmi health`, a metadata service, a raw kernel log line). Whoever ships them from the
machine itself says so in headers: `X-Medevac-Node`, `X-Medevac-Cluster`, `X-Medevac-Boot-Id`. They fill what a
statement leaves open and override nothing: a statement that names its machine keeps it, and takes no boot either.

A header that can't be read (`${NODE_NAME}`, which nobody has filled in) refuses the statements that need it, and no
others: without it they would be about no machine, or about one of whichever cluster knows the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from medevac.events.event import HealthEvent, Kind
from medevac.events.parsing import Parsed, ParseError, Payload, Refusal
from medevac.events.reading import clean, is_node_name, join_key, quote

NODE_HEADER, CLUSTER_HEADER, BOOT_HEADER = "x-medevac-node", "x-medevac-cluster", "x-medevac-boot-id"
EXIT_HEADER = "x-medevac-exit-code"
_NUMBER = re.compile(r"-?[0-9]{1,5}")
_NO_MACHINE = frozenset({Kind.HANDSHAKE, Kind.TEST})
_NEEDS_NONE = _NO_MACHINE | {Kind.INFO}


def header(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name, "").strip()
    return clean(value) if is_node_name(value) else None


def _unreadable(headers: Mapping[str, str], name: str, shown: str, expected: str) -> str:
    """What is wrong with the header; empty where nothing is, or where it isn't there."""
    value = headers.get(name, "")
    if not value.strip() or is_node_name(value.strip()):
        return ""
    return f"header {shown} is {quote(value, 60)}, expected {expected}"


def with_exit_code(payload: Payload) -> Payload:
    """The header says it where nobody else did. Raises `ParseError` for one that is no number."""
    said = payload.headers.get(EXIT_HEADER, "").strip()
    if payload.exit_code is not None or not said:
        return payload
    if not _NUMBER.fullmatch(said):
        raise ParseError(f"header X-Medevac-Exit-Code is {quote(said[:40])}, expected a command's exit status")
    return replace(payload, exit_code=int(said))


def placed(parsed: Parsed, headers: Mapping[str, str]) -> Parsed:
    """Statements without a machine get that of the headers. Without the headers nothing changes.

    Raises `ParseError` where nothing is left because a header that it needs can't be read.
    """
    no_node = _unreadable(headers, NODE_HEADER, "X-Medevac-Node", "the name of the node it was read on")
    no_cluster = _unreadable(headers, CLUSTER_HEADER, "X-Medevac-Cluster", "a cluster's name in the configuration")

    def lacks(event: HealthEvent) -> str:
        if event.kind in _NEEDS_NONE:
            return ""
        return (no_node if event.subject is None and not event.gpu_ids else "") or (
            no_cluster if event.cluster is None else ""
        )

    if no_node or no_cluster:
        lacking = [why for event in parsed.events if (why := lacks(event))]
        if lacking and len(lacking) == len(parsed.events) and not parsed.refused:
            raise ParseError(lacking[0])
        refused = (Refusal(f"{lacking.count(why)} of {len(parsed.events)}", why) for why in dict.fromkeys(lacking))
        events = tuple(event for event in parsed.events if not lacks(event))
        parsed = Parsed(events, (*parsed.refused, *refused), parsed.truncated)
    node, cluster, boot_id = (header(headers, name) for name in (NODE_HEADER, CLUSTER_HEADER, BOOT_HEADER))
    if node is None and cluster is None:
        return parsed

    def place(event: HealthEvent) -> HealthEvent:
        update: dict[str, object] = {"cluster": event.cluster or cluster}
        if event.subject is None and node is not None and event.kind not in _NO_MACHINE:
            update |= {
                "subject": node,
                "boot_id": event.boot_id or boot_id,
                # The same words from another machine are another statement.
                "id": join_key(event.id, cluster, node),
            }
        return event.model_copy(update=update)

    return Parsed(tuple(place(event) for event in parsed.events), parsed.refused, parsed.truncated)
