"""While a remedy runs: its own symptoms and echoes are no faults, and what is real stays real."""

from __future__ import annotations

import pytest

from medevac.events.event import HealthEvent, Kind
from medevac.events.registry import read
from medevac.faults.catalogue import classify
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.faultset import Change, FaultSet, Remedy
from medevac.fleet.node import Identity
from tests.unit.events.payloads import payload
from tests.unit.faults.said import alert, at, said

BROKEN = FaultSet().observe(said("xid/79", boot_id="b1"), at(0)).faults
BEFORE = Identity(boot_id="b1")


def running(step: str) -> Remedy:
    return Remedy(step=step, began_at=at(100), deadline=at(1_000), before=BEFORE)


PROVED = Remedy(step="verify", began_at=at(100), deadline=at(1_000), proved_at=at(600), before=BEFORE, echo_grace_s=300)


def change(event: HealthEvent, seconds: float, remedy: Remedy | None, faults: FaultSet = BROKEN) -> Change:
    return faults.observe(event, at(seconds), remedy=remedy).change


SYMPTOMS = [
    said("condition/Ready", source="k8s_node"),
    alert("alert/KubeNodeNotReady"),
    alert("alert/SomethingAboutOurTaint"),
    alert("monitor/exporter-silent"),
    said("nvsentinel/GpuDcgmConnectivityFailure", source="nvsentinel"),
    said("instance-state/stopping", source="aws", kind=Kind.LIFECYCLE),
    said("asg/EC2_INSTANCE_TERMINATING", source="aws", kind=Kind.LIFECYCLE),
    said("slurm/not-responding", source="slurm"),
    said("instance-status/system-impaired", source="aws"),
]


@pytest.mark.parametrize("event", SYMPTOMS, ids=lambda e: e.fault)
@pytest.mark.parametrize("step", ["evacuate", "act", "prove", "verify"])
def test_what_the_step_causes_joins_as_expected(event: HealthEvent, step: str) -> None:
    observed = BROKEN.observe(event, at(200), remedy=running(step))
    assert observed.change is Change.EXPECTED
    assert observed.faults == BROKEN


def test_a_hook_of_another_hand_than_ours_is_a_planned_event() -> None:
    hook = said("asg/EC2_INSTANCE_TERMINATING", source="aws", kind=Kind.LIFECYCLE)
    observed = FaultSet().observe(hook, at(0))
    assert observed.change is Change.NEW
    assert [fault.fault_class for fault in observed.faults.faults] == [FaultClass.PLANNED]
    assert change(hook, 1_001, running("prove")) is Change.NEW


@pytest.mark.parametrize("event", [e for e in SYMPTOMS if e.kind is Kind.FAULT], ids=lambda e: e.fault)
def test_what_outlasts_the_step_or_has_no_step_is_real(event: HealthEvent) -> None:
    assert change(event, 1_001, running("prove")) is Change.NEW
    assert change(event, 200, None) is Change.NEW
    assert change(event, 200, running("probation")) is Change.NEW


@pytest.mark.parametrize(
    "event",
    [
        said("xid/48", boot_id="b1"),
        said("condition/KernelDeadlock", source="npd"),
        said("condition/AcceleratedHardwareReady", source="eks_nma"),
        said("nvlink/down", source="dcgm"),
        alert("thermal/gpu-temp"),
    ],
    ids=lambda e: e.fault,
)
def test_hardware_is_never_explained_away(event: HealthEvent) -> None:
    assert change(event, 200, running("act")) in (Change.NEW, Change.WORSE)


def test_the_fault_that_is_being_mended_repeats() -> None:
    not_ready = FaultSet().observe(said("condition/Ready", source="k8s_node"), at(0)).faults
    assert change(said("condition/Ready", source="k8s_node"), 200, running("act"), not_ready) is Change.REPEAT
    assert change(said("xid/79", boot_id="b1"), 200, running("act")) is Change.REPEAT


# --- echoes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "seconds", "expected"),
    [
        (said("xid/79", boot_id="b1"), 650, Change.EXPECTED),  # delivered late, of the old boot
        (said("xid/79", boot_id="b1", starts_at=at(50)), 650, Change.EXPECTED),
        (said("xid/79", boot_id="b1", starts_at=at(640)), 650, Change.REPEAT),  # a GPU reset keeps the boot id
        (said("xid/79", boot_id="b2"), 650, Change.REPEAT),
        (said("xid/79", boot_id="b2", starts_at=at(590)), 650, Change.REPEAT),
        (said("xid/79", starts_at=at(50)), 650, Change.EXPECTED),
        (said("xid/79", starts_at=at(640)), 650, Change.REPEAT),
        (said("xid/79"), 650, Change.REPEAT),  # nothing says that it is old
        (alert("xid/79", starts_at=at(0)), 650, Change.EXPECTED),
        (alert("xid/79", starts_at=at(0)), 900, Change.EXPECTED),
        (alert("xid/79", starts_at=at(0)), 901, Change.REPEAT),  # still stated after the grace
        (alert("xid/79", starts_at=at(640)), 650, Change.REPEAT),
        (alert("xid/79"), 650, Change.REPEAT),
    ],
)
def test_a_statement_from_before_the_proof_is_an_echo(event: HealthEvent, seconds: float, expected: Change) -> None:
    observed = BROKEN.observe(event, at(seconds), remedy=PROVED)
    assert observed.change is expected
    if expected is Change.EXPECTED:
        assert observed.faults == BROKEN


def test_after_the_check_an_echo_opens_nothing_and_a_real_fault_does() -> None:
    mended = BROKEN.prove({Covers.BUS, Covers.COMPUTE}, "b2", at(700), since=at(600))
    probation = PROVED.model_copy(update={"step": "probation"})
    assert change(said("xid/79", boot_id="b1"), 800, probation, mended) is Change.EXPECTED
    assert change(alert("xid/79", starts_at=at(0)), 800, probation, mended) is Change.EXPECTED
    assert change(alert("xid/79", starts_at=at(0)), 901, probation, mended) is Change.NEW
    assert change(said("xid/79", boot_id="b2"), 800, probation, mended) is Change.NEW


def test_an_old_statement_of_what_no_check_covered_is_news() -> None:
    assert change(said("xid/48", boot_id="b1"), 650, PROVED) is Change.NEW
    mended = BROKEN.prove({Covers.BUS, Covers.COMPUTE}, "b2", at(700))
    assert change(said("xid/48", boot_id="b1"), 800, PROVED, mended) is Change.NEW
    thorough = BROKEN.prove({Covers.BUS, Covers.COMPUTE, Covers.MEMORY}, "b2", at(700))
    assert change(said("xid/48", boot_id="b1"), 800, PROVED, thorough) is Change.EXPECTED


def test_a_check_from_before_the_remedy_covers_nothing() -> None:
    earlier = FaultSet().prove({Covers.BUS, Covers.COMPUTE}, "b0", at(500))
    assert change(said("xid/79", boot_id="b1"), 650, PROVED, earlier) is Change.NEW


def test_a_second_remedy_does_not_bring_back_what_the_first_has_mended() -> None:
    mended = BROKEN.prove({Covers.BUS, Covers.COMPUTE}, "b2", at(700), since=at(600))
    second = Remedy(step="act", began_at=at(750), deadline=at(1_000), before=Identity(boot_id="b2"))
    assert change(alert("xid/79", starts_at=at(0)), 800, second, mended) is Change.EXPECTED
    assert change(alert("xid/79", starts_at=at(0)), 901, second, mended) is Change.NEW
    assert change(alert("xid/79", starts_at=at(650)), 800, second, mended) is Change.NEW
    assert change(alert("xid/48", starts_at=at(0)), 800, second, mended) is Change.NEW


def latched(
    seconds: float = -3_600, text: str = "AcceleratedHardwareReady=False NvidiaXID119Error: GSP"
) -> HealthEvent:
    """As the EKS node monitoring agent goes on saying it, whatever is done, until it is restarted."""
    return said("xid/119", source="eks_nma", starts_at=at(seconds), summary=text, boot_id="b2")


MENDED = (
    FaultSet().observe(latched(), at(0)).faults.prove({Covers.COMPUTE, Covers.SERVICE}, "b2", at(700), since=at(600))
)
WATCHED = PROVED.model_copy(update={"step": "probation", "latched_s": 86_400.0})


@pytest.mark.parametrize("minutes", [1, 4, 10, 60, 23 * 60])
def test_a_latched_condition_that_says_the_same_as_before_the_proof_is_no_news(minutes: int) -> None:
    observed = MENDED.observe(latched(), at(700 + 60 * minutes), remedy=WATCHED)
    assert observed.change is Change.EXPECTED
    assert observed.faults.faults == ()


def test_people_are_told_once_what_ends_it() -> None:
    first = MENDED.observe(latched(), at(2_000), remedy=WATCHED)
    assert "Restart its agent" in first.reason
    again = first.faults.observe(latched(), at(2_300), remedy=WATCHED)
    assert (first.told, again.told, again.change) == (False, True, Change.EXPECTED)


@pytest.mark.parametrize(
    ("event", "seconds", "why"),
    [
        (
            latched(text="AcceleratedHardwareReady=False NvidiaXID119Error: GSP; NvidiaXID119Error: GSP"),
            2_000,
            "message",
        ),
        (latched(seconds=1_900), 2_000, "transition"),
        (latched(), 600 + 86_401, "a day has passed"),
        (said("xid/119", boot_id="b2", starts_at=at(1_990)), 2_000, "the kernel says it"),
        (alert("xid/119", starts_at=at(-3_600), summary=latched().summary), 2_000, "an alert stands by its last word"),
    ],
    ids=lambda part: part if isinstance(part, str) else None,
)
def test_whatever_else_is_said_after_the_proof_is_real(event: HealthEvent, seconds: float, why: str) -> None:
    assert change(event, seconds, WATCHED, MENDED) is Change.NEW, why


def agents(*messages: str) -> HealthEvent:
    condition = {
        "type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID119Error",
        "message": "; ".join(messages), "lastTransitionTime": at(-3_600).isoformat(),
    }  # fmt: skip
    machine = {"kind": "Node", "metadata": {"name": "gpu-node-07"}, "status": {"conditions": [condition]}}
    (event,) = read("eks_nma", payload(machine)).events
    return classify(event)


def test_what_an_agent_adds_beyond_what_a_summary_holds_is_news() -> None:
    before = [
        f"NVRM: Xid (PCI:0000:{bus:02x}:00): 119, Timeout waiting for RPC from GSP {'x' * 60}" for bus in range(6)
    ]
    first = agents(*before)
    mended = (
        FaultSet().observe(first, at(0)).faults.prove({Covers.COMPUTE, Covers.SERVICE}, "b2", at(700), since=at(600))
    )
    more = agents(*before, "NVRM: Xid (PCI:0000:cb:00): 119, Timeout waiting for RPC from GSP")
    assert (more.summary, more.fault) == (first.summary, first.fault), "cut alike"
    assert change(agents(*before), 2_000, WATCHED, mended) is Change.EXPECTED
    assert change(more, 2_000, WATCHED, mended) is Change.NEW
    verifying = PROVED.model_copy(update={"latched_s": 86_400.0})
    broken = FaultSet().observe(first, at(0)).faults
    assert change(more, 1_500, verifying, broken) is Change.REPEAT


def test_a_condition_of_what_the_check_did_not_cover_stays_real() -> None:
    broken = FaultSet().observe(latched(), at(0)).faults
    partly = broken.prove({Covers.COMPUTE}, "b2", at(700), since=at(600))
    assert change(latched(), 2_000, WATCHED, partly) in (Change.NEW, Change.REPEAT)


def test_an_incident_from_before_there_was_such_a_time_goes_on_as_it_began() -> None:
    assert change(latched(), 2_000, WATCHED.model_copy(update={"latched_s": 0.0}), MENDED) is Change.NEW


def test_while_the_check_runs_its_repeats_keep_nothing_open() -> None:
    broken = FaultSet().observe(latched(), at(0)).faults
    verifying = PROVED.model_copy(update={"latched_s": 86_400.0})
    heard = broken.observe(latched(), at(1_500), remedy=verifying)
    assert heard.change is Change.EXPECTED
    assert heard.faults.prove({Covers.COMPUTE, Covers.SERVICE}, "b2", at(1_600), since=at(600)).faults == ()
    worse = latched(text="AcceleratedHardwareReady=False NvidiaXID119Error: once more")
    assert change(worse, 1_500, verifying, broken) is Change.REPEAT, "that is said of the time since"
