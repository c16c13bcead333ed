"""Parts of a machine: which a fault is about, which have changed, which must be known again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from medevac.incident import Line
from medevac.model import Model

MACHINE, GPU = "machine", "GPU"
UUID = "GPU-"


class Part(Model):
    kind: str
    names: tuple[str, ...]
    """Serial and UUID, as far as they are known."""
    place: str = ""
    """Canonical PCI address."""
    faulty: bool = False
    """The fault names it."""

    def __str__(self) -> str:
        return f"{self.kind} {' = '.join(self.names)}"

    def among(self, others: Iterable[Part]) -> bool:
        return any(set(self.names) & set(other.names) for other in others)


def names_in(entities: Iterable[str]) -> tuple[str, ...]:
    """Serials and UUIDs of GPUs among the entities of events."""
    pairs = [entity.partition(":") for entity in entities]
    return tuple(dict.fromkeys(name for kind, _, name in pairs if kind in ("gpu-uuid", "gpu-serial") and name))


def checked(lines: Sequence[Line]) -> tuple[Part, ...]:
    """GPUs as the newest check of these lines that names them has seen them."""
    for line in reversed(lines):
        found: object = line.data
        for name in ("result", "proof", "check", "detail", "gpus"):
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, list) and found:
            return tuple(_gpu([str(entity) for entity in one]) for one in found if isinstance(one, list))
    return ()


def known(
    serial: str, gpus: Sequence[Part], listed: Iterable[str] = (), entities: Iterable[str] = ()
) -> tuple[Part, ...]:
    """`gpus`: as a check has seen them; where none has, `listed`, the inventory's serials. `entities`: of the fault."""
    found = list(gpus) or [Part(kind=GPU, names=(name,)) for name in listed]
    entities = tuple(entities)
    named, places = names_in(entities), {entity for entity in entities if entity.startswith("pci:")}
    found = [
        gpu.model_copy(update={"faulty": bool(gpu.place in places or set(gpu.names) & set(named))}) for gpu in found
    ]
    listed_names = {name for gpu in found for name in gpu.names}
    # A GPU that fell off the bus is in no list of a check.
    found += [Part(kind=GPU, names=(name,), faulty=True) for name in named if name not in listed_names]
    return (*((Part(kind=MACHINE, names=(serial,)),) if serial else ()), *found)


def gone(was: Sequence[Part], now: Sequence[Part]) -> tuple[Part, ...]:
    """GPUs that aren't there any more; what is now known by other names only may still be the same."""
    after = [part for part in now if part.kind == GPU]
    kinds = {name.startswith(UUID) for part in after for name in part.names}
    return tuple(
        part
        for part in was
        if part.kind == GPU and any(name.startswith(UUID) in kinds for name in part.names) and not part.among(after)
    )


def changes(was: Sequence[Part], now: Sequence[Part]) -> tuple[str, ...]:
    """Old and new of each GPU that was exchanged, and what was at fault and is still there, in words."""
    left = gone(was, now)
    came = [part for part in now if part.kind == GPU and not part.among(was)]
    said = []
    for part in left:
        there = [one for one in came if one.place and one.place == part.place]
        new = there or (came if len(came) == len(left) == 1 else [])
        said.append(f"{part} is now {new[0]}" if new else f"{part} is gone")
    said += [f"{part}, which was at fault, is still there" for part in was if part.faulty and part.among(now)]
    return tuple(said)


def sent_back(was: Sequence[Part], now: Sequence[Part], *, machine_left: bool) -> tuple[Part, ...]:
    """What must be known again: a machine that left, with the part that was at fault; else what was taken out of it."""
    if machine_left:
        return tuple(part for part in was if part.kind == MACHINE or part.faulty)
    return gone(was, now)


def _gpu(entities: Sequence[str]) -> Part:
    place = next((entity for entity in entities if entity.startswith("pci:")), "")
    return Part(kind=GPU, names=names_in(entities), place=place)
