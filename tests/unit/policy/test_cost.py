"""Cost asks: where more work would be lost than the policy lets go by itself, or nobody knows how much."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from medevac.fleet.node import Workload
from medevac.policy.plan import Plan
from tests.unit.policy.cases import HOUR, NOW, bare, decide, fault, faults, job, policy

SAVED = NOW - HOUR


def planned(*work: Workload, above: float | None = 100, code: str = "xid/119", **given: Any) -> Plan:
    extra = given.pop("policy", {})
    return decide(code, under=policy(ask_above_gpu_hours=above, **extra), workloads=work, where=bare(), **given)


def why(plan: Plan) -> tuple[str, ...]:
    return plan.approval.why if plan.approval else ()


def test_more_than_the_policy_lets_go_asks_and_less_does_not() -> None:
    one, other = (job(name, gpus=64, last_checkpoint=SAVED) for name in ("a/one", "b/other"))
    assert why(planned(one)) == ()
    assert why(planned(one, other)) == ("more than 100 GPU-hours of work would be lost",)
    assert why(planned(one, other, above=None)) == ()


def test_work_of_which_nobody_knows_asks_by_its_name() -> None:
    (said,) = why(planned(job("a/one"), job("b/saved", last_checkpoint=NOW)))
    assert "a/one" in said
    assert "b/saved" not in said


def test_without_a_checkpoint_all_is_lost_since_the_job_began() -> None:
    assert why(planned(job(gpus=64, started_at=SAVED))) == ()
    (said,) = why(planned(job(gpus=64, started_at=NOW - 2 * HOUR)))
    assert said == "more than 100 GPU-hours of work would be lost"


def test_what_loses_nothing_never_asks() -> None:
    assert why(planned(job(ready_to_evict=True), job("a/notebook", gpus=0), above=0)) == ()
    assert why(planned(above=0)) == ()
    assert why(planned(job(), above=0, code="monitor/exporter-silent")) == (), "nobody is evicted for an agent"


def test_how_often_a_job_saves_bounds_its_loss() -> None:
    saves = {"checkpoints": [{"kinds": ["Job"], "interval": "30m"}]}
    assert why(planned(job(gpus=64), policy=saves)) == ()
    assert why(planned(job(gpus=64), above=31, policy=saves)) == ("more than 31 GPU-hours of work would be lost",)


def test_a_plan_that_only_got_older_is_the_same_question() -> None:
    long_ago = job(gpus=64, last_checkpoint=NOW - 5 * HOUR)
    assert planned(long_ago).hash == planned(long_ago, at=NOW + timedelta(minutes=1)).hash


def test_the_worlds_own_deadline_asks_nobody() -> None:
    notice = fault("spot-interruption", not_before=NOW + timedelta(minutes=30))
    assert why(planned(job(), above=0, faults=faults(notice))) == ()


def test_a_threshold_below_nothing_is_refused() -> None:
    with pytest.raises(ValidationError):
        policy(ask_above_gpu_hours=-1)
