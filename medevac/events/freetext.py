"""Fault codes and names out of prose, where a sender has no field for them. Ambiguous text yields nothing."""

from __future__ import annotations

import re

from medevac.events.event import Severity
from medevac.events.reading import fault_code, gpu, is_node_name, pci
from medevac.faults import nvlink5
from medevac.faults.catalogue import lookup

MAX_TEXT = 4_000
"""Characters of a sender's prose that are looked at."""

_CODE = re.compile(
    r"(?<![A-Za-z])(?:nvidia|gpu|dcgm)?(s?xid)s?(?: ?(?:code|error|err|event|number)s?){0,2}"
    r"(?:[ _:=#-]{0,3}(?:\((?:PCI:?)?(?P<pci>[0-9a-f:.]{5,20})[^()]{0,40}\) ?: ?)?| ?[(\[]#?)"
    r"(?P<number>[0-9]{1,5})(?:\.(?P<part>[0-9]{1,3}))?(?![0-9]|[.,][0-9])",
    re.IGNORECASE,
)
_COUNT = re.compile(r"(?:codes|errors|errs|events|numbers|xids)[ _#([-]{0,3}$", re.IGNORECASE)
_PCI = re.compile(
    r"(?<![0-9a-f:])(?:PCI:)?[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?(?![0-9a-f:])", re.IGNORECASE
)
_GPU = re.compile(r"(?<![A-Za-z])GPU(?: id| index)?[ #:_-]{0,2}([0-9]{1,3})(?![0-9a-f%]|[:.-][0-9a-f])", re.IGNORECASE)
_ON = re.compile(r"\bon (?:node |host )?([A-Za-z0-9][A-Za-z0-9._-]{1,252})")


def xid_code(*texts: str | None) -> str | None:
    """`xid/79` or `sxid/12028`; None where no text names one, or where the texts name several."""
    found: set[str] = set()
    for text in texts:
        for m in _CODE.finditer((text or "")[:MAX_TEXT]):
            space, number = m[1].lower(), int(m["number"])
            top = 65_536 if space == "sxid" else 1_000
            counts = _COUNT.search(m[0][: m.start("number") - m.start()])
            # `149.37` is NVLink 5's code with its part; of any other it is a number that says something else.
            alone = not m["part"] or number in nvlink5.CODES
            if 0 < number < top and not counts and alone:
                found.add(fault_code(space, number))
    return found.pop() if len(found) == 1 else None


def severity_of(code: str | None) -> Severity | None:
    """`critical` where every published table takes the code for hardware."""
    return lookup(code).severity if code else None


def pci_in(text: str | None) -> str | None:
    """The one PCI address in a text."""
    found = {p for m in _PCI.finditer((text or "")[:MAX_TEXT]) if (p := pci(m[0]))}
    return found.pop() if len(found) == 1 else None


def gpu_in(text: str | None) -> str | None:
    """The one GPU index in a text (`GPU 4`, `gpu4`); never a count (`4 GPUs`)."""
    found = {g for m in _GPU.finditer((text or "")[:MAX_TEXT]) if (g := gpu(m[1]))}
    return found.pop() if len(found) == 1 else None


def node_after_on(text: str | None) -> str | None:
    """`gpu-node-07` of "XID 79 on gpu-node-07": a name with a digit in it, and the only such."""
    names = {m[1].rstrip("._-") for m in _ON.finditer((text or "")[:MAX_TEXT])}
    found = {n for n in names if any(c.isdigit() for c in n) and not n.isdigit() and is_node_name(n)}
    found = {n for n in found if not _GPU.fullmatch(n)}
    return found.pop() if len(found) == 1 else None
