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
    r"(?P<number>[0-9]{1,5})(?:\.(?P<part>[0-9]{1,3}))?(?![0-9]|\.[0-9]|,[0-9]{3})",
    re.IGNORECASE,
)
_NEXT = re.compile(
    r" {0,2}(?:(?P<joined>[/&+|]|, ?(?:and|or|then)|and|or|then|plus|followed by)|[,;])? {0,2}(?:s?xids? ?[:#-]? ?)?"
    r"(?P<number>[0-9]{1,5})(?![0-9A-Za-z_%°-]|:[0-9]|[.,][0-9]{3}|\.[0-9])",
    re.IGNORECASE,
)
"""Perhaps a further code of a list: `13, 79`, `94 and 79`, `79/74`."""
_LISTED = re.compile(
    r"\s*(?:$|[^\w\s(/+&=~*]| and [0-9]{1,3} (?:more|others?)\b|(?:on|at|for|in|detected|seen|reported)\b)",
    re.IGNORECASE,
)
_ERRORS = re.compile(r" {0,2}errors?\b", re.IGNORECASE)
"""What follows the last code of a list. Before any other word a number counts: `Xid 79, 8 procs killed`."""
_NOT = re.compile(
    r"\b(?:no|without|never|not an?|n't an?) "
    r"(?:(?:new|other|further|more|such|active|recent|known|nvidia|gpu|single|any) ){0,2}$"
    r"|\bno (?:gpu|node|host|device)s? (?:with|ha[ds]|have|reports?|reported|shows?|showed) $",
    re.IGNORECASE,
)
"""Denies what comes next, not what stands elsewhere: `no response after Xid 79`."""
_TAG = r"[A-Za-z0-9_./@-]{1,64}"
_STAMP = (
    r"(?:[A-Z][a-z]{2} [ 0-9]?[0-9] |-[0-9]{2}[T ])[0-9]{2}:[0-9]{2}:[0-9]{2}\S{0,14} (?:[0-9]{4} )?(?:UTC |GMT )?"
    r"(?!(?i:node|host|on|[0-9]{4}|UTC|GMT|trace|debug|info|notice|warn|warning|err|error|crit|critical|alert|emerg"
    r"|fatal) )[A-Za-z0-9][A-Za-z0-9_.-]{0,252} "
)
"""The time and a host: no year, zone or level."""
_WRITER = re.compile(rf"(?:^|\s){_TAG}\[[0-9]{{1,10}}\]: |{_STAMP}(?!kernel: |NVRM: |nvidia-){_TAG}: ")
"""Who wrote a log line that a text quotes, where that wasn't the kernel: `checker[12]: `, `10:00:00 gpu-1 alice: `."""
_FORGER = re.compile(
    rf"(?:{_WRITER.pattern})(?:{_STAMP})?(?=(?:\[[ 0-9.]{{3,24}}\] ?)?(?:kernel: |NVRM: |nvidia-nvswitch))"
)
"""The same, before words that only the kernel writes."""
_SPEAKS = re.compile(r"(?i:(?<![A-Za-z])(?:nvidia|gpu|dcgm)?s?xid)|(?<=[a-z])S?X(?:id|ID)|(?<=GPU)S?X(?:id|ID)")
_COUNT = re.compile(r"(?:codes|errors|errs|events|numbers|xids)[ _#([-]{0,3}$", re.IGNORECASE)
_PCI = re.compile(
    r"(?<![0-9a-f:])(?:PCI:)?[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?(?![0-9a-f:])", re.IGNORECASE
)
_GPU = re.compile(r"(?<![A-Za-z])GPU(?: id| index)?[ #:_-]{0,2}([0-9]{1,3})(?![0-9a-f%]|[:.-][0-9a-f])", re.IGNORECASE)
_ON = re.compile(
    r"\bon (?:(?P<said>(?:node|host|machine|instance)[ :=]{1,2}))?(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{1,252})"
    r"|\b(?:node|host|hostname)(?: ?[=:] ?)(?P<named>[A-Za-z0-9][A-Za-z0-9._-]{1,252})",
    re.IGNORECASE,
)
_OF_NAME = re.compile(r"(?:\b(?:node|host|machine|instance|hostname)[ :=]{1,3}|[A-Za-z0-9][._-])$", re.IGNORECASE)
"""What stands before the name of a machine, whose `gpu-12` is no GPU's index."""


def xid_codes(text: str | None, *, checked: bool = False) -> tuple[str, ...]:
    """Each Xid and SXid that a text names, in order: `xid/79`, `sxid/12028`. What it denies ("no Xid 79") isn't named,
    nor what it quotes out of a log where a process had written it. `checked`: a health check wrote the text, whose
    name may stand before its words (`healthd[812]: Xid 79`); there only the kernel's words after a process' name are
    left out."""
    writer = _FORGER if checked else _WRITER
    text = (text or "")[:MAX_TEXT]
    found: dict[str, None] = {}
    begin, end, written = 0, -1, None
    for m in _CODE.finditer(text):
        if m.start() > end:
            begin, end = text.rfind("\n", 0, m.start()) + 1, text.find("\n", m.start()) % (len(text) + 1)
            written = writer.search(text[begin:end])
        space, number = m[1].lower(), int(m["number"])
        top = 65_536 if space == "sxid" else 1_000
        by_process = written is not None and begin + written.end() <= m.start()
        if by_process or _NOT.search(text[max(begin, m.start() - 60) : m.start()]):
            continue
        # A kernel's line goes on with a process or a channel.
        numbers = [number] if m["pci"] else [number, *_listed(text, m.end())]
        counts = _COUNT.search(m[0][: m.start("number") - m.start()])
        # `149.37` is NVLink 5's code with its part; of any other it is a number that says something else.
        alone = not m["part"] or number in nvlink5.CODES
        if (not counts or len(numbers) > 1) and alone:
            found |= dict.fromkeys(fault_code(space, n) for n in numbers if 0 < n < top)
    return tuple(found)


def _listed(text: str, at: int) -> list[int]:
    """The codes that a list goes on with."""
    found: list[int] = []
    sure = 0
    while more := _NEXT.match(text, at):
        found.append(int(more["number"]))
        at = more.end()
        if _LISTED.match(text, at) or (more["joined"] and _ERRORS.match(text, at)):
            sure = len(found)
    return found[:sure]


def xid_code(*texts: str | None) -> str | None:
    """The one that the texts name; None where they name none, or several."""
    found = {code for text in texts for code in xid_codes(text)}
    return found.pop() if len(found) == 1 else None


def speaks_of_xids(text: str) -> bool:
    """`GpuXid`, `NVIDIA_XID_ERRORS`; not `TaxId`."""
    return _SPEAKS.search(text[:MAX_TEXT]) is not None


def severity_of(code: str | None) -> Severity | None:
    """`critical` where every published table takes the code for hardware."""
    return lookup(code).severity if code else None


def pci_in(text: str | None) -> str | None:
    """The one PCI address in a text."""
    found = {p for m in _PCI.finditer((text or "")[:MAX_TEXT]) if (p := pci(m[0]))}
    return found.pop() if len(found) == 1 else None


def gpu_in(text: str | None) -> str | None:
    """The one GPU index in a text (`GPU 4`, `gpu4`); never a count (`4 GPUs`), nor a machine's name (`node gpu-4`)."""
    text = (text or "")[:MAX_TEXT]
    places = (m for m in _GPU.finditer(text) if not _OF_NAME.search(text[max(0, m.start() - 12) : m.start()]))
    found = {g for m in places if (g := gpu(m[1]))}
    return found.pop() if len(found) == 1 else None


def node_after_on(text: str | None) -> str | None:
    """`gpu-node-07` of "XID 79 on gpu-node-07": a name with a digit in it, and the only such. `gpu-12` is a machine
    only where it is called one ("on node gpu-12", "node=gpu-12")."""
    found: set[str] = set()
    for m in _ON.finditer((text or "")[:MAX_TEXT]):
        name, called = (m["name"] or m["named"]).rstrip("._-"), m["said"] or m["named"]
        named = any(c.isdigit() for c in name) and not name.isdigit() and is_node_name(name)
        if named and (called or not _GPU.fullmatch(name)):
            found.add(name)
    return found.pop() if len(found) == 1 else None
