"""What people's paging tools have in common: an alert's title, a machine named somewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping

from medevac.events.freetext import node_after_on
from medevac.events.reading import gpu, host_of, is_node_name, one_line

NODE_KEYS = ("node", "nodename", "node_name", "host", "hostname", "instance_id", "instance-id", "kube_node", "machine")
MONITORS = frozenset(("alertmanager", "prometheus", "grafana", "datadog", "cloudwatch", "nagios", "zabbix"))
"""What a page's `source` names where the monitor that sent it puts itself there."""
_LABEL = re.compile(r"^[ \t]*-[ \t]*([A-Za-z_][A-Za-z0-9_]{0,80}) = (.{1,300})$", re.MULTILINE)
_OWN = re.compile(r"\bmedevac[/:]", re.IGNORECASE)
"""In a deduplication key, alias or text: a page that medevac itself sent."""


def machine_of(details: Mapping[str, object], *candidates: object) -> str | None:
    """A field that names the machine, else the first candidate that is a name; None otherwise."""
    held = {str(k).lower(): v for k, v in details.items()}
    for value in (*(held.get(k) for k in NODE_KEYS), *candidates):
        if isinstance(value, str) and (host := host_of(value)) is not None:
            return host
    return None


def machine_in_title(title: str) -> str | None:
    """`gpu-node-07` of "XID 79 on gpu-node-07": the inventory knows it or it is nobody."""
    return node_after_on(title)


def machine_in_key(key: str) -> str | None:
    """`gpu-node-07` of the key `gpu-node-07/xid79`: the part before the slash, where it has digits and letters."""
    name, slash, rest = key.partition("/")
    named = slash and rest and any(c.isdigit() for c in name) and any(c.isalpha() for c in name)
    return name if named and is_node_name(name) and not _OWN.search(key[:300]) else None


def gpu_of(details: Mapping[str, object], *texts: str | None) -> str | None:
    """A field `gpu`, else the index glued to the word in a short text such as `gpu4`."""
    if found := gpu(details.get("gpu")):
        return found
    for text in texts:
        if m := re.fullmatch(r"gpu[ #:_-]?([0-9]{1,3})", (text or "")[:40], re.IGNORECASE):
            return gpu(m[1])
    return None


def marker_of(*texts: str | None) -> str | None:
    return next((one_line(t, 120) for t in texts if t and _OWN.search(t[:4_000])), None)


def tags_of(text: str) -> dict[str, str]:
    """`host:gpu-node-07,gpu:4` as a mapping; of a tag that stands twice with different values none is kept."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for tag in text[:20_000].split(","):
        key, colon, value = tag.strip().partition(":")
        if colon and found.setdefault(key, value) != value:
            twice.add(key)
    return {k: v for k, v in found.items() if k not in twice and (k not in NODE_KEYS or is_node_name(v))}


def firing_labels(text: object) -> dict[str, str]:
    """Of the list ` - node = gpu-7` that Alertmanager writes into a page; none of which it names two values."""
    found: dict[str, set[str]] = {}
    for key, value in _LABEL.findall(text[:20_000]) if isinstance(text, str) else ():
        found.setdefault(key, set()).add(value.strip())
    return {key: values.pop() for key, values in found.items() if len(values) == 1}
