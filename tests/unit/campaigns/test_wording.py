"""Those who are asked are shown what they agree to: what is unusual first, names last, and nothing cut in silence."""

from __future__ import annotations

from typing import Any

import pytest

from medevac.campaigns import wording
from medevac.campaigns.listing import Nothing
from medevac.campaigns.spec import Act, Care
from tests.unit.campaigns.test_campaigns import fleet, listed, spec
from tests.unit.policy.cases import job, node

LOOSE: dict[str, Any] = {"soak": "0s", "expected_failures": 0.1, "out_percent": 20}


def test_image_drain_and_unusual_care_come_before_any_name() -> None:
    image = "https://images.example/driver.iso"
    plan = listed(fleet(24), spec(act="reinstall", image=image, drain="now", care=LOOSE))
    told = wording.question(plan)
    assert told.startswith(f"drain now, reinstall with image {image}: 24 nodes. Differs from what is shipped: ")
    before, _, names = told.partition(". Nodes: ")
    for word in ("soak 0 s (shipped 65 min)", "expected_failures 0.1 (shipped 0.02)", "out_percent 20 (shipped 10)"):
        assert word in before
    assert "First 1, 2, 3 of them, each watched for 0 s, then at most 1 at once; about " in before
    assert "0 nodes left out, 0 jobs hit" in before
    assert names.count(", ") == 23
    assert "Differs" not in wording.question(listed(fleet(24), spec()))


@pytest.mark.parametrize("image", ["https://images.example/driver.iso", f"https://images.example/{'x' * 460}.iso"])
def test_what_has_no_room_is_counted_and_says_where_it_stands(image: str) -> None:
    many = [node(name=f"ip-10-0-{n // 250}-{n % 250}.eu-central-1.compute.internal") for n in range(400)]
    works = {f"{one.cluster}/{one.name}": [job(name=f"pretraining-of-a-large-model-{n}")] for n, one in enumerate(many)}
    out = dict.fromkeys(list(works)[:7], "inc-1")
    wanted = spec(act="reinstall", image=image, drain="now", care=LOOSE)
    plan = listed(many, wanted, workloads=works, in_incident=out)
    told = wording.question(plan)
    assert len(told) <= wording.LONGEST
    assert "393 nodes" in told
    assert "7 nodes left out, 393 jobs hit" in told
    assert "at most 4 at once; about " in told
    _, _, jobs = told.partition(". Jobs: ")
    assert "more: medevac campaign show drv-580. Jobs: " in told or ". Nodes: 393: medevac campaign show" in told
    assert jobs.endswith("medevac campaign show drv-580")
    if len(image) > wording.IMAGE:
        assert "… (cut; all of it: medevac campaign show drv-580)" in told
    else:
        assert "pretraining-of-a-large-model" in jobs


def test_the_longest_care_is_shown_whole() -> None:
    care = {
        **LOOSE, "stages": [0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 4.95], "window": "25h59m", "look": "299s",
        "deadline": "25h59m", "at_once": 10_000, "expected_faults": 0.123456,
    }  # fmt: skip
    plan = listed(fleet(2_000), spec(act="reinstall", image="x" * 490, drain="now", care=care))
    told = wording.question(plan)
    assert len(told) <= wording.LONGEST
    for name in Care.model_fields:
        assert f"{name} " in told.partition(". Nodes: ")[0]


@pytest.mark.parametrize(
    ("care", "word"),
    [
        ({"stages": [0.1 * n for n in range(1, 40)]}, "care.stages has 39 stages"),
        ({"window": "1s", "soak": "0s"}, "care.window is 1 s"),
        ({"window": "30m"}, "care.window is 30 min"),
        ({"expected_faults": 10}, "care.expected_faults is 10"),
        ({"expected_failures": 0.2}, "care.expected_failures is 0.2"),
    ],
)
def test_care_that_would_see_nothing_is_refused(care: dict[str, Any], word: str) -> None:
    with pytest.raises(Nothing, match=word):
        listed(fleet(4), spec(care=care))


def test_each_act_says_what_happens_to_a_node() -> None:
    told = [wording.happens(spec(act=act)) for act in Act]
    assert told == [
        "drain checkpoint, reboot", "drain checkpoint, reinstall", "drain checkpoint, replace",
        "drain checkpoint, hold", "check, nothing else is touched",
    ]  # fmt: skip
