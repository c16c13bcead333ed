"""What can be done to a machine, and what it is after the time that this takes."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from pydantic import JsonValue

from activities.ports import NEEDS, Mark, NotSent, Verb
from simulation import population, workloads
from simulation.did import Did
from simulation.hazards import Behaviour, Effect
from simulation.moment import Moment

Answer = Did[JsonValue]

INCLUDES = {
    Verb.RESTART_AGENT: (Verb.RESTART_AGENT,),
    Verb.RESET_GPU: (Verb.RESET_GPU,),
    Verb.REBOOT: (Verb.REBOOT, Verb.RESET_GPU, Verb.RESTART_AGENT),
    Verb.REINSTALL: (Verb.REINSTALL, Verb.REBOOT, Verb.RESET_GPU, Verb.RESTART_AGENT),
}
"""A stronger remedy cures what a weaker one does."""


def apply(m: Moment, verb: Verb, machine: str, tag: str, by: str = "") -> Answer:
    """One physical call to provider `by`, or the machine's own. Raises `NotSent` where it would refuse it."""
    row = m.one("SELECT * FROM machines WHERE id = ?", machine)
    if row is None or row["state"] in ("terminating", "gone"):
        if verb is Verb.TERMINATE and row is not None:
            return Did("terminating already", False)
        raise NotSent(f"machine {machine} doesn't exist", final=True)
    by = by or row["provider"]
    if NEEDS[verb] not in m.layout.providers[by].capabilities:
        raise NotSent(f"{by} can't {verb.value}", final=True)
    running = m.count("SELECT COUNT(*) FROM pods WHERE machine = ? AND tier = 'workload'", machine)
    match verb:
        case Verb.REQUEST:
            return _request(m, row, tag, by)
        case Verb.TERMINATE:
            _silence(m, machine, "terminating")
            m.later(m.durations.terminate, "terminated", machine)
        case Verb.REBOOT | Verb.REINSTALL:
            _silence(m, machine, "running")
            if not _never_boots(m, machine, verb):
                m.later(getattr(m.durations, verb.value), "booted", machine, verb=verb.value)
        case Verb.RESET_GPU | Verb.RESTART_AGENT:
            if verb is Verb.RESET_GPU and running:
                raise NotSent(f"GPUs of {machine} are in use by {running} pods")
            m.cancel(machine, "refreshed")
            m.later(getattr(m.durations, verb.value), "refreshed", machine, verb=verb.value)
    return Did(f"op-{m.next('operation')}", True, {"running": running, "silent": not row["ready"]})


def _silence(m: Moment, machine: str, state: str) -> None:
    m.cancel(machine, "booted", "refreshed")
    m.run("UPDATE machines SET ready = 0, state = ? WHERE id = ?", state, machine)


def _never_boots(m: Moment, machine: str, verb: Verb) -> bool:
    return any(
        Behaviour.model_validate_json(fault["behaviour"]).never_boots and not _ends(fault, verb)
        for fault in m.all("SELECT cure, behaviour FROM faults WHERE machine = ? AND present", machine)
    )


def _request(m: Moment, old: sqlite3.Row, tag: str, by: str) -> Answer:
    stock = m.layout.providers[by].stock
    used = "SELECT COUNT(*) FROM machines WHERE provider = ? AND requested_by IS NOT NULL"
    if stock is not None and m.count(used, by) >= stock:
        raise NotSent(f"{by} has no capacity left", retry_after_s=30.0)
    machine = population.machine_id(m, by, f"request/{m.next('request')}")
    own = by == old["provider"]
    topology = json.loads(old["topology"]) | ({} if own else {"region": f"{by}-1", "image": f"{by}-os-7"})
    population.insert(
        m, "machines",
        population.template(m, machine, by, old["cluster"])
        | {name: old[name] for name in ("pool", "labels", "roles", "reserved")}
        | {"topology": json.dumps(topology), "state": "requested", "ready": False, "requested_by": tag},
    )  # fmt: skip
    faults = m.all("SELECT * FROM faults WHERE machine = ? AND cured_at IS NULL", old["id"])
    behaviours = [Behaviour.model_validate_json(fault["behaviour"]) for fault in faults]
    for fault, behaviour in zip(faults, behaviours, strict=True):
        if behaviour.successor_faulty:
            present(m, machine, "", old["cluster"], fault["code"], fault["covers"], fault["cure"], behaviour)
    if not (own and any(behaviour.successor_never_joins for behaviour in behaviours)):
        m.later(m.durations.join, "joined", machine)
    return Did({"request": machine})


def present(
    m: Moment, machine: str, node: str, cluster: str, code: str, covers: str, cure: str, behaviour: Behaviour
) -> int:
    m.run(
        "INSERT INTO faults (cluster, node, machine, code, covers, cure, behaviour, present, injected_at, since)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?)",
        cluster, node, machine, code, covers, cure, behaviour.model_dump_json(), m.now, m.now,
    )  # fmt: skip
    if behaviour.not_ready:
        m.run("UPDATE machines SET ready = 0 WHERE id = ?", machine)
    return m.count("SELECT last_insert_rowid()")


# -- what time does --------------------------------------------------------------------------------------------


def booted(m: Moment, machine: str, verb: str) -> None:
    boots = m.next(f"boots/{machine}") + 1
    m.run(
        "UPDATE machines SET boots = ?, boot_id = ?, gpu_mark = ? WHERE id = ?",
        boots, m.identity("boot", machine, boots), m.identity("gpu", machine, boots), machine,
    )  # fmt: skip
    if verb == Verb.REINSTALL.value:
        m.run("UPDATE machines SET image_mark = ? WHERE id = ?", m.identity("image", machine, boots), machine)
    _heal(m, machine, Verb(verb))
    _ready(m, machine)
    workloads.booted(m, machine)


def refreshed(m: Moment, machine: str, verb: str) -> None:
    mark = m.identity("refresh", machine, m.next(f"refresh/{machine}"))
    m.run("UPDATE machines SET gpu_mark = ? WHERE id = ?", mark, machine)
    _heal(m, machine, Verb(verb))


def joined(m: Moment, machine: str) -> None:
    """A successor joins under its own name and born marked: out of service until its incident lifts the mark."""
    row = m.one("SELECT cluster, requested_by FROM machines WHERE id = ? AND state = 'requested'", machine)
    if row is None:
        return
    short = population.letter(m.layout.clusters.index(row["cluster"]))
    node = f"gpu-{short}-{m.next('node/' + row['cluster']):03d}"
    mark = Mark(incident=row["requested_by"], code="successor", faults=(), reason="successor, not verified yet")
    m.run(
        "UPDATE machines SET state = 'running', node = ?, uid = ?, marked_by = ?, mark = ? WHERE id = ?",
        node, m.identity("uid", machine), mark.incident, mark.model_dump_json(), machine,
    )  # fmt: skip
    m.run("UPDATE faults SET node = ? WHERE machine = ?", node, machine)
    population.insert(m, "pods", *population.daemons(m, machine, row["cluster"], node))
    m.later(m.durations.first_boot, "first_boot", machine)


def first_boot(m: Moment, machine: str) -> None:
    _ready(m, machine)


def terminated(m: Moment, machine: str) -> None:
    m.run("UPDATE machines SET state = 'gone', ended_at = ? WHERE id = ?", m.now, machine)
    m.run("UPDATE faults SET present = 0 WHERE machine = ?", machine)
    workloads.machine_gone(m, machine)


def recurs(m: Moment, fault: str) -> None:
    row = m.one("SELECT * FROM faults WHERE id = ? AND cured_at IS NULL", fault)
    if row is None or m.count("SELECT COUNT(*) FROM machines WHERE id = ? AND state = 'gone'", row["machine"]):
        return
    m.run("UPDATE faults SET present = 1, since = ? WHERE id = ?", m.now, fault)
    if Behaviour.model_validate_json(row["behaviour"]).not_ready:
        m.run("UPDATE machines SET ready = 0 WHERE id = ?", row["machine"])


def _ready(m: Moment, machine: str) -> None:
    silent = any(
        Behaviour.model_validate_json(fault["behaviour"]).not_ready
        for fault in m.all("SELECT behaviour FROM faults WHERE machine = ? AND present", machine)
    )
    m.run("UPDATE machines SET ready = ? WHERE id = ? AND state = 'running'", not silent, machine)
    row = m.one("SELECT cluster FROM machines WHERE id = ?", machine)
    if row and not silent:
        workloads.place(m, row["cluster"])


def _heal(m: Moment, machine: str, verb: Verb) -> None:
    for fault in m.all("SELECT * FROM faults WHERE machine = ? AND cured_at IS NULL", machine):
        behaviour = Behaviour.model_validate_json(fault["behaviour"])
        if _ends(fault, verb) and Effect(verb.value) not in behaviour.clears:
            m.cancel(str(fault["id"]), "recurs")
            m.run(
                "UPDATE faults SET present = 0, cured_at = ?, cured_by = ? WHERE id = ?",
                m.now, verb.value, fault["id"],
            )  # fmt: skip
        elif fault["present"] and {Effect(part.value) for part in INCLUDES[verb]} & set(behaviour.clears):
            m.run("UPDATE faults SET present = 0 WHERE id = ?", fault["id"])
            m.later(behaviour.recurs_after_s, "recurs", str(fault["id"]))


def _ends(fault: sqlite3.Row, verb: Verb) -> bool:
    cure: list[Any] = json.loads(fault["cure"])
    return any(part.value in cure for part in INCLUDES[verb])
