"""A question as its voters see it: everything they must weigh, in one card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from medevac.approvals import tally
from medevac.approvals.approval import ApprovalState, ApprovalView, Waiter
from medevac.faults.catalogue import lookup
from medevac.policy.stakes import with_owner
from medevac.telling.card import At, Button, Card, Confirm, Field, Link, Words
from medevac.telling.facts import Facts, Job, Links

APPROVE, REJECT, DETAILS = "medevac_approve", "medevac_reject", "medevac_details"
NAMED = 20
LISTED = 5
EVIDENCE = 3
AMOUNT = " GPU-hours"
DECIDED = {
    ApprovalState.APPROVED: "approved",
    ApprovalState.REJECTED: "rejected",
    ApprovalState.EXPIRED: "expired, which is a no",
    ApprovalState.WITHDRAWN: "withdrawn: nobody waits for it any more",
}


def approval_card(view: ApprovalView, facts: Mapping[str, Facts], links: Links) -> Card:
    """`facts` by incident; a waiter without any is shown with what the question itself says."""
    unknown = {"jobs_read": False, "past_read": False}
    known = [facts.get(w.incident) or Facts(cluster=w.cluster, node=w.node, **unknown) for w in view.waiters]
    body: tuple[Field, ...] = ()  # Where all who waited have left.
    if view.waiters:
        planned = [_planned_at(view, waiter) for waiter in view.waiters]
        body = (
            _one(view.waiters[0], known[0], links, planned[0])
            if len(known) == 1
            else _many(view.waiters, known, links, planned)
        )
    pending = view.state is ApprovalState.PENDING
    head = _head(view) if pending else _decision(view)
    return Card(
        title=view.title if pending else f"{DECIDED[view.state].partition(',')[0].partition(':')[0]}: {view.title}",
        summary=f"{view.title}: yes or no?" if pending else f"{view.title}: {DECIDED[view.state]}",
        fields=(*head, *body),
        buttons=_buttons(view) if pending else (),
        footnote=(f"approval {view.id}",),
        loud=pending,
    )


def vote_of(value: str) -> tuple[str, str]:
    """What a button's value says: approval and what its voter was shown. Raises `ValueError`."""
    try:
        said = json.loads(value)
        return str(said["a"]), str(said["h"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError("this button isn't one of ours") from error


def no_means(view: ApprovalView) -> str:
    """What follows one person's no."""
    return _follows(view, "for that machine and fault it holds for 24 hours, until a worse fault")


def silence_means(view: ApprovalView) -> str:
    """What follows when nobody answers in time."""
    nodes = "the node stays as it is" if len(view.waiters) == 1 else "the nodes stay as they are"
    return _follows(view, f"{nodes}, and a person must take it from there")


def _follows(view: ApprovalView, of_nodes: str) -> str:
    """By the kinds of those who wait."""
    kinds = dict.fromkeys(waiter.workflow_id.partition("/")[0] for waiter in view.waiters)
    said = {
        "campaign": "the campaign ends and no node of it is touched; it can be asked for again",
        "case": "no ticket is opened with the provider, and a person must do it",
    }
    return "; ".join(dict.fromkeys(said.get(kind, of_nodes) for kind in kinds or {"node": None}))


def _buttons(view: ApprovalView) -> tuple[Button, ...]:
    # No more than an id and a digest: what is agreed to stands in the ledger, not in a message.
    value = json.dumps({"a": view.id, "h": view.shown_hash}, separators=(",", ":"))
    loses = [cost for waiter in view.waiters for cost in waiter.destroys]
    what = f"Destroys: {'; '.join(loses[:2])}{' and more' if len(loses) > 2 else ''}" if loses else "Destroys nothing."
    return (
        Button(APPROVE, "Approve", value, confirm=Confirm("Approve this?", f"{view.title}\n{what}")),
        Button(REJECT, "Reject …", value, danger=True),
        Button(DETAILS, "Details", value),
    )


def _head(view: ApprovalView) -> tuple[Field, ...]:
    need = view.need
    also = f", one of them of {need.one_of}" if need.one_of else ""
    requesters = {view.requested_by, *view.also_requested_by} - {"medevac"}
    barred = f"; not {', '.join(sorted(requesters))}, who asked" if requesters else ""
    votes = "".join(f"; {vote.voter} said {vote.verdict} by {vote.via}" for vote in view.votes)
    then = need.reminder.then if need.reminder else ()
    later: Words = ("; from ", At(tally.remind_at(view)), f" on members of {', '.join(then)} as well") if then else ()
    lost = tuple(Field("No longer counts", (tally.no_longer(one),)) for one in tally.lost(view)[:LISTED])
    return (
        Field("Who may approve", (f"{need.threshold} of {', '.join(need.groups)}{also}", *later, f"{barred}{votes}")),
        Field(
            "If nobody answers",
            ("it is a no at ", At(view.expires_at), f": {silence_means(view)}"),
        ),
        *lost,
        Field("Asked because", ("; ".join(need.why) or "the policy asks",)),
    )  # fmt: skip


def _decision(view: ApprovalView) -> tuple[Field, ...]:
    result = view.result
    if result is None:
        return (Field("Decision", (DECIDED[view.state],)),)
    by = f" by {', '.join(result.by)}" if result.by else ""
    how = {vote.voter: vote.via for vote in view.votes}
    via = f" ({', '.join(how[who] for who in result.by if who in how)})" if result.by else ""
    why = f": {result.reason}" if result.reason and result.reason not in DECIDED[view.state] else ""
    return (Field("Decision", (f"{DECIDED[view.state]}{by}{via} at ", At(result.decided_at), why)),)


def _one(waiter: Waiter, facts: Facts, links: Links, planned_at: datetime) -> tuple[Field, ...]:
    if not facts.fault and waiter.workflow_id.startswith("campaign/"):
        # It asks for itself, and says in its own words what it hits.
        return (
            Field("What", (waiter.text,)),
            Field("Where", (f"cluster {waiter.cluster}, {waiter.node}",)),
            Field("Destroys", _listed(_with_owners(waiter, facts, planned_at), "nothing")),
            Field("Evidence", _evidence(waiter, facts, links)),
        )
    fields = [
        Field("What", (waiter.text,)),
        Field("Step", (_step(facts),)),
        Field("Destroys", _listed(_with_owners(waiter, facts, planned_at), "nothing")),
        Field("Fault", _fault(facts, links)),
        Field("First seen", (At(facts.first_seen),) if facts.first_seen else ("unknown",)),
        Field("Where", (_where(facts),)),
        Field("Evidence", _evidence(waiter, facts, links)),
        Field("Jobs hit", _listed([_job(job) for job in facts.jobs], _nothing(facts, "none known"))),
        Field("Budgets", (_budgets(facts),)),
        Field("Last 30 days", _listed(facts.past, "no other incident of this machine")),
    ]
    if facts.unreadable:
        fields.append(Field("Can't be read now", (facts.unreadable,)))
    return tuple(fields)


def _many(
    waiters: Sequence[Waiter], known: Sequence[Facts], links: Links, planned: Sequence[datetime]
) -> tuple[Field, ...]:
    count = len(waiters)
    named = ", ".join(
        f"{w.node}{f' ({f.rack})' if f.rack else ''}" for w, f in zip(waiters[:NAMED], known, strict=False)
    )
    more = f" and {count - NAMED} more" if count > NAMED else ""
    costs = list(dict.fromkeys(cost for w, f, at in zip(waiters, known, planned, strict=True)
                               for cost in _with_owners(w, f, at)))  # fmt: skip
    first = next((facts for facts in known if facts.fault), known[0])
    seen = [facts.first_seen for facts in known if facts.first_seen]
    jobs = {job.name: job for facts in known for job in facts.jobs}
    return (
        Field(f"Nodes ({count})", (named + more,)),
        Field("What", (f"{waiters[0].text}{' …' if count > 1 else ''}",)),
        Field("Steps", (_counted(f.rung for f in known),)),
        Field("Destroys", _listed(costs, "nothing")),
        Field("Fault", (f"{_counted(f.fault for f in known)}; ", *_fault(first, links))),
        Field("First seen", (At(min(seen)),) if seen else ("unknown",)),
        Field("Where", (
            f"clusters {_counted(f.cluster for f in known)}; pools {_counted(f.pool for f in known)}; "
            f"providers {_counted(f.provider for f in known)}; racks {_counted(f.rack for f in known)}; "
            f"machines {', '.join(f.machine_id or '?' for f in known[:NAMED])}",
        )),
        Field("Evidence", _evidence(waiters[0], first, links)),
        Field("Jobs hit", _listed([_job(job) for job in jobs.values()], "none known",
                                  unread=sum(not f.jobs_read for f in known))),
        Field("Budgets", (_budgets(first),)),
        Field("Last 30 days", _listed([f"{f.node}: {line}" for f in known for line in f.past[:1]],
                                      "no other incident of these machines",
                                      unread=sum(not f.past_read for f in known))),
    )  # fmt: skip


def _step(facts: Facts) -> str:
    if not facts.rung:
        return "as the question says"
    return f"{facts.rung}, attempt {facts.attempt} of {facts.of}" if facts.attempt else facts.rung


def _fault(facts: Facts, links: Links) -> Words:
    if not facts.fault:
        return ("as the question says",)
    name = lookup(facts.fault).name
    where = f" on {', '.join(facts.entities)}" if facts.entities else ""
    kind = f", {facts.fault_class}" if facts.fault_class else ""
    return (f"{facts.fault}: {name}{kind}{where} · ", Link("runbook", links.of_fault(facts.fault)))


def _where(facts: Facts) -> str:
    said = [f"cluster {facts.cluster}", f"node {facts.node}"]
    said += [f"{label} {value or '?'}" for label, value in (("rack", facts.rack), ("pool", facts.pool))]
    said.append(f"provider {facts.provider or '?'}")
    said.append(f"machine {facts.machine_id or '?'}")
    return ", ".join([*said, f"serial {facts.serial}"] if facts.serial else said)


def _evidence(waiter: Waiter, facts: Facts, links: Links) -> Words:
    kind = waiter.workflow_id.partition("/")[0]
    if kind in ("campaign", "case"):
        return (f"`medevac {kind} show {waiter.incident}`",)
    said = "\n".join(facts.evidence[:EVIDENCE]) or "see the incident"
    if not links.incident:
        return (f"{said}\n`medevac incidents {waiter.incident}`",)
    return (said, "\n", Link("all of it", links.of_incident(waiter.incident)))


def _with_owners(waiter: Waiter, facts: Facts, planned_at: datetime) -> list[str]:
    """Amounts grow while one waits: each is of now, or says of when it is."""
    return [_cost(cost, facts, planned_at) for cost in waiter.destroys]


def _cost(cost: str, facts: Facts, planned_at: datetime) -> str:
    job = next((job for job in facts.jobs if f" {job.name} " in f" {cost} "), None)
    if job is not None:
        cost = cost.removesuffix(f" (owner {job.owner})")
    what, colon, _ = cost.partition("): ")
    if job is not None and job.lost and job.lost_at and colon:
        cost = f"{what}): {job.lost}, as of {job.lost_at:%H:%M} UTC"
    elif AMOUNT in cost:
        cost = f"{cost}, as of {planned_at:%H:%M} UTC, when it was planned"
    return with_owner(cost, job.owner) if job is not None and job.owner else cost


def _planned_at(view: ApprovalView, waiter: Waiter) -> datetime:
    return view.joined.get(waiter.incident, view.requested_at)


def _job(job: Job) -> str:
    lost = f"; would lose {job.lost}" if job.lost else ""
    return f"{job.name} of {job.owner or 'nobody known'}, {job.gpus} GPUs{lost}"


def _budgets(facts: Facts) -> str:
    said = [
        f"{b.domain}: {b.used} of {b.limit} used{f', {b.out} out by others' if b.out else ''}" for b in facts.budgets
    ]
    spares = "not counted" if facts.spares is None else str(facts.spares)
    return "; ".join([*(said or [_nothing(facts, "none known")]), f"spares: {spares}"])


def _nothing(facts: Facts, otherwise: str) -> str:
    return "can't be read now" if facts.unreadable else otherwise


def _listed(said: Sequence[str], nothing: str, unread: int = 0) -> Words:
    """`unread`: nodes that nobody looked at. That is said first, as long lists are cut."""
    rest = f"{unread} node{'' if unread == 1 else 's'} not read" if unread else ""
    if not said:
        return (rest or nothing,)
    more = f"\n… and {len(said) - LISTED} more" if len(said) > LISTED else ""
    return (f"{rest}; of the others:\n" if rest else "", "\n".join(said[:LISTED]) + more)


def _counted(values: Iterable[str]) -> str:
    counts = Counter(value or "?" for value in values)
    listed = [value if len(counts) == 1 else f"{value} × {count}" for value, count in counts.most_common(LISTED)]
    return ", ".join([*listed, "…"] if len(counts) > LISTED else listed)
