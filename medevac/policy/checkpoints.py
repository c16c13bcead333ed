"""Where the last checkpoint of jobs shows that don't speak the checkpoint protocol: as the policy says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from medevac.fleet.node import Workload
from medevac.policy.settings import Checkpoint

Probe = Callable[[str, Workload], datetime | None]


def speaks_of(entry: Checkpoint, work: Workload) -> bool:
    namespace = work.name.partition("/")[0] if "/" in work.name else work.owner
    return (not entry.namespaces or namespace in entry.namespaces) and (not entry.kinds or work.kind in entry.kinds)


def seen(work: Workload, entries: Iterable[Checkpoint], probe: Probe | None = None) -> Workload:
    """The workload with the checkpoint that the first entry about it shows; its own word goes before all of them.

    Whoever writes the annotation that the policy names says by it that the checkpoint is complete.
    """
    if work.last_checkpoint is not None:
        return work
    for entry in entries:
        if not speaks_of(entry, work):
            continue
        at = work.times.get(entry.annotation) if entry.annotation else None
        if at is None and entry.command and probe is not None:
            at = probe(entry.command, work)
        if at is not None:
            return work.model_copy(update={"last_checkpoint": at})
    return work
