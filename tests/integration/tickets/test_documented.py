"""What docs/cases.md shows can be configured, and what `medevac doctor` says of it where it can't sign in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from activities.ports import Discloses, HasRights, HasThread
from activities.registry import Registry
from medevac.cases.letter import SHARED, Share
from tests.integration.tickets.rigs import AwsRig, JiraRig
from tests.unit.activities.casehouse import PROVIDER, CaseHouse
from worker import doctor
from worker.config import TicketSystem
from worker.parts import Built, _made
from worker.settings import Settings

PAGE = (Path(__file__).parents[3] / "docs" / "cases.md").read_text(encoding="utf-8")


def shown() -> list[TicketSystem]:
    text = next(block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "kind: jira" in block)
    return [TicketSystem.model_validate(one) for one in YAML(typ="safe").load(text)["tickets"]]


@pytest.mark.parametrize("system", shown(), ids=lambda system: str(system.kind))
def test_each_shown_system_is_made(system: TicketSystem) -> None:
    made = _made("tickets", system)
    assert made.name == system.name
    assert not made.simulated
    for port in (HasThread, HasRights, Discloses):
        assert isinstance(made, port)


def test_what_is_shared_by_itself_is_as_the_page_says() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| .* \| (yes|no) \|$", PAGE, re.MULTILINE)
    said = {Share(name): answer == "yes" for names, answer in rows for name in re.findall(r"\w+", names)}
    assert said == {share: share in SHARED for share in Share}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[CaseHouse]:
    house = CaseHouse(tmp_path)
    yield house
    house.close()


async def parts(monkeypatch: pytest.MonkeyPatch, house: CaseHouse, tickets: Any) -> str:
    """What the doctor says of an installation with this ticket system."""
    registry = Registry(
        clusters=house.registry.clusters(),
        providers=house.registry.providers(),
        chat=house.registry.chat,
        tickets={PROVIDER: tickets},
    )
    monkeypatch.setattr(doctor, "find_config", lambda settings: None)
    monkeypatch.setattr(doctor, "build_parts", lambda config, data_dir: Built.of(registry))
    [found] = [one for one in await doctor._parts(doctor.House(Settings())) if one.what.startswith("tickets")]
    return f"{found.what}: {found.text}"


async def test_the_doctor_says_one_clear_line(monkeypatch: pytest.MonkeyPatch, house: CaseHouse, moto: str) -> None:
    with JiraRig() as jira:
        assert await parts(monkeypatch, house, jira.tickets) == "tickets jira: has what it needs"
        jira.lacks.add("CREATE_ISSUES")
        assert await parts(monkeypatch, house, jira.tickets) == "tickets jira: lacks: CREATE_ISSUES in project OPS"
        jira.far.denied = 401
        said = await parts(monkeypatch, house, jira.tickets)
        assert said.startswith("tickets jira: jira: Jira refuses the account (HTTP 401)")
    with AwsRig(moto) as aws:
        aws.no_plan = True
        assert "has no API" in await parts(monkeypatch, house, aws.tickets)
    house.desk.denied()
    assert (await parts(monkeypatch, house, house.desk.tickets)).startswith("tickets desk: desk: check ended with 77")
