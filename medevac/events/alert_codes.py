"""Which fault an alert speaks of: one rule for every sender whose alerts have a name, labels and prose.

1. A label `medevac_fault` names the catalogue's code outright, for rules written with medevac in mind. It is heard only
   among the labels that a rule's own configuration writes: tags and details are typed by whoever can open an alert.
2. Else the number in `xid` or `xid_code`, in any case, or in `err_code` where the alert is about a GPU or speaks of
   Xids: other software has error codes, too. It decides over what any text says: where it can't be read, is 0 or DCGM's
   mark for "none", or where two such labels differ, nothing is known.
3. Else the Xid that the name speaks of; else that of the message; else that of the notes (annotations of a rule), where
   the name or a label speaks of Xids. Notes are written for people, and name codes that didn't happen: where no more
   than the name's GPU is known, a sentence that advises, explains or supposes isn't read; where not even that, none is.
   The first of them that names any decides: where it names several, nothing is known.
4. What is left is `alert/<name>`, which notifies and does nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from medevac.events.freetext import MAX_TEXT, speaks_of_xids, xid_codes
from medevac.events.reading import fault_code, gpu, gpu_uuid, one_line, pci, whole
from medevac.faults.catalogue import rows

FAULT_LABEL = "medevac_fault"
XID_LABELS = frozenset(("xid", "xid_code"))
CODE_LABEL = "err_code"
MAX_XID = 1_000
_FAULT = re.compile(r"([a-z][a-z0-9-]{1,30})(?:/[A-Za-z0-9][A-Za-z0-9 _.-]{0,119}){0,2}")
_WRITTEN = re.compile(r"\s*(s?)xid[ _:#-]{0,2}([0-9]{1,5})\s*", re.IGNORECASE)
_DEVICE = re.compile(r"nvidia[0-9]{1,3}")
_ERROR = re.compile(
    r"\b(?:GPU|ECC|NVLink|NVSwitch|GSP|MMU|row.?remap\w*|fallen off the bus|push buffer"
    r"|(?:copy|graphics|display) engine|video (?:processor|memory)|driver firmware|micro-?controller"
    r"|preemptive cleanup|context switch|page retirement|(?:single|double).bit)",
    re.IGNORECASE,
)
"""Of an `err_msg`, as the driver's table of Xids words it."""
_ABOUT_GPUS = re.compile(r"gpu|nvidia|dcgm|cuda|nvlink|nvswitch|accelerator|hardware|\b[hd]gx", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.;!?])\s+|\n")
_ADVICE = re.compile(
    r"\b(?:if|when|whether|unless|look|check|see|search|grep|find|e\.g|example|such as|like|may|might"
    r"|could|can|would|should|possibl[ey]|perhaps|maybe|usual(?:ly)?|often|typical(?:ly)?|likely|means?|meaning|causes?|known"
    r"|suspect\w*|runbook)\b",
    re.IGNORECASE,
)
_MENTION = re.compile(r"xids?\D{0,20}[0-9]{1,5}", re.IGNORECASE)
_SUPPOSED = re.compile(
    r"\W{0,3}(?:may|might|could|can|would|means?|usually|often|typically|indicates?|is often)\b", re.IGNORECASE
)


def alert_code(
    name: str,
    labels: Mapping[str, object] | None = None,
    message: Sequence[str | None] = (),
    notes: Sequence[str | None] = (),
    *,
    rule: Mapping[str, object] | None = None,
) -> str:
    """`message`: what a monitor says of this very alert (its text, deduplication key or condition). `rule`: those
    labels that stand in the rule's configuration, which nobody else can write."""
    unknown = fault_code("alert", one_line(name, 160))
    held = [(key.lower(), value) for key, value in (labels or {}).items() if value not in (None, "")]
    if wanted := [v for k, v in (rule or {}).items() if k.lower() == FAULT_LABEL and v not in (None, "")]:
        named = _outright(wanted[0])
        return named if named and len(set(map(str, wanted))) == 1 else unknown
    texts = {key: value for key, value in held if isinstance(value, str)}
    speaks = any(speaks_of_xids(text) for text in (name, *texts, *texts.values()))
    told = speaks or any(speaks_of_xids(text) for text in (*message, *notes) if text)
    counting = XID_LABELS | {CODE_LABEL} if told or _of_a_gpu(dict(held)) else XID_LABELS
    if said := {_labelled(value) for key, value in held if key in counting}:
        return (said.pop() if len(said) == 1 else None) or unknown
    if speaks:
        notes = (texts.get("err_msg"), *notes)
    else:
        notes = tuple(map(_stated, notes)) if _ABOUT_GPUS.search(name[:300]) else ()
    for spoken in ((name,), message, notes):
        if codes := {code for text in spoken for code in xid_codes(text)}:
            return codes.pop() if len(codes) == 1 else unknown
    return unknown


def _of_a_gpu(labels: Mapping[str, object]) -> bool:
    """Beside labels as dcgm-exporter and its like set them."""
    return (
        any(key.startswith("dcgm_") for key in labels)
        or gpu(labels.get("gpu")) is not None
        or gpu_uuid(labels.get("uuid")) is not None
        or pci(labels.get("pci_bus_id")) is not None
        or _DEVICE.fullmatch(str(labels.get("device"))[:20]) is not None
        or _ERROR.search(str(labels.get("err_msg", ""))[:400]) is not None
    )


def _stated(text: str | None) -> str:
    """The sentences of a note that say what is, without those that advise, explain or suppose."""
    stated = []
    for sentence in _SENTENCE.split((text or "")[:MAX_TEXT]):
        m = _MENTION.search(sentence)
        if m and not _ADVICE.search(sentence[: m.start()]) and not _SUPPOSED.match(sentence[m.end() :]):
            stated.append(sentence)
    return "\n".join(stated)


def _outright(value: object) -> str | None:
    m = _FAULT.fullmatch(value[:200]) if isinstance(value, str) else None
    known = m is not None and any(code == m[1] or code.startswith(f"{m[1]}/") for code in rows())
    return fault_code(str(value)) if known else None


def _labelled(value: object) -> str | None:
    """The code that one label says; None for what is no code."""
    m = _WRITTEN.fullmatch(value[:40]) if isinstance(value, str) else None
    number = whole(m[2] if m else value)
    if number is None:
        return None
    if 0 < number < MAX_XID and not (m and m[1]):
        return fault_code("xid", number)
    switch = fault_code("sxid", number)
    return switch if switch in rows() else None
