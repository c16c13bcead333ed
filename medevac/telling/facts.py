"""`Facts`: what is known about one node when people are told or asked about it. What nobody knows is empty."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

from medevac.model import Model


class Job(Model):
    name: str
    owner: str = ""
    gpus: int = 0
    lost: str = ""
    """What a disruption at `lost_at` would undo of it, in words with the amount; empty where nobody looked."""
    lost_at: datetime | None = None


class Budget(Model):
    """How much of one failure domain is disrupted now, and how much may be."""

    domain: str
    used: int
    limit: int
    out: int = 0
    """Out of service by others' doing; it counts too."""


class Facts(Model):
    cluster: str
    node: str
    rack: str = ""
    pool: str = ""
    provider: str = ""
    machine_id: str = ""
    serial: str = ""
    fault: str = ""
    fault_class: str = ""
    entities: tuple[str, ...] = ()
    """`gpu:4`, ...: which part shows the fault."""
    first_seen: datetime | None = None
    evidence: tuple[str, ...] = ()
    """Newest first."""
    jobs: tuple[Job, ...] = ()
    jobs_read: bool = True
    """False where nobody looked, or nothing could be read: then `jobs` says nothing."""
    rung: str = ""
    attempt: int = 0
    of: int = 0
    budgets: tuple[Budget, ...] = ()
    spares: int | None = None
    past: tuple[str, ...] = ()
    """The machine's last 30 days, newest first."""
    past_read: bool = True
    unreadable: str = ""
    """What couldn't be read just now."""


PUBLIC = {
    "xid": "https://docs.nvidia.com/deploy/xid-errors/",
    "sxid": "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
    "dcgm": "https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/",
}
ELSE = "https://kubernetes.io/docs/reference/node/node-status/"


class Links(Model):
    """Where more is to be read. Templates with `{incident}` and `{code}`."""

    incident: str = ""
    runbook: str = ""
    """Of the house; unset: what the maker of the code has published."""

    def of_fault(self, code: str) -> str:
        if self.runbook:
            return self.runbook.replace("{code}", quote(code, safe=""))
        return PUBLIC.get(code.partition("/")[0], ELSE)

    def of_incident(self, incident: str) -> str:
        return self.incident.replace("{incident}", quote(incident, safe=""))
