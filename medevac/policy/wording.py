"""Plans and faults in plain words."""

from __future__ import annotations

from medevac.faults.catalogue import lookup
from medevac.policy.durations import words
from medevac.policy.judging import Judged
from medevac.policy.plan import Action, Plan, Rung

VERBS = {
    Rung.WAIT: "wait until it is over",
    Rung.RESTART_AGENT: "restart the monitor's agent",
    Rung.RESET_GPU: "reset its GPUs",
    Rung.REBOOT: "reboot it",
    Rung.REINSTALL: "reinstall it",
    Rung.REPLACE: "replace the machine",
    Rung.TERMINATE: "terminate the machine",
    Rung.RMA: "open the provider's ticket for an exchange and hand it over",
}


def what_is_wrong(judged: Judged) -> str:
    """`xid/79 (GPU has fallen off the bus) is critical; rule critical`."""
    fault, verdict = judged.fault, judged.verdict
    if fault.order is not None:
        for_what = f" ({fault.summary})" if fault.summary else ""
        return f"campaign {fault.order.campaign} wants it: {fault.order.rung}{for_what}"
    name = _name(lookup(fault.code).name)
    note = f", {fault.note}" if fault.note else ""
    raised = f", raised from {fault.fault_class}" if verdict.fault_class is not fault.fault_class else ""
    named = f" ({name})" if verdict.rules or fault.fault_class.repairable else ""
    return f"{fault.code}{named} is {verdict.fault_class}{raised}{note}"


def _name(name: str) -> str:
    """The readable part of `SHOUTED_SYMBOL (what it means)`."""
    symbol, bracket, meaning = name.partition(" (")
    return (meaning.removesuffix(")") if bracket and symbol.isupper() else name)[:80]


def sentence(plan: Plan) -> str:
    """What a plan does, as one sentence in the conditional."""
    mark = "mark the node" if plan.mark else ""
    match plan.action:
        case Action.ACT:
            parts = [mark]
            if plan.request_first:
                parts.append("ask for a successor")
            if plan.drain is not None:
                parts.append(f"evacuate it within {words(round(plan.drain_s))} ({plan.drain})")
            if plan.rung is not None:
                attempt = f" (attempt {plan.attempt} of {plan.of})" if plan.attempt else ""
                parts.append(VERBS.get(plan.rung, str(plan.rung)) + attempt)
            if plan.covers and plan.rung not in (Rung.TERMINATE, Rung.RMA):
                parts.append(f"check {', '.join(plan.covers)}")
            text = "would " + ", then ".join(part for part in parts if part)
            if plan.approval is not None:
                people = f"{plan.approval.threshold} of {', '.join(plan.approval.groups)}"
                text += f"; {people} would be asked first ({'; '.join(plan.approval.why)})"
            return text
        case Action.WATCH:
            return f"would {mark + ' and ' if mark else ''}wait {words(round(plan.watch_s))}: {plan.reasons[-1]}"
        case Action.HAND_OVER:
            return f"would {mark + ' and ' if mark else ''}hand it to a person: {plan.reasons[0]}"
        case _:
            return f"would {plan.action}"
