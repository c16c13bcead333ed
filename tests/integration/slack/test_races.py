"""Randomised races for votes, through two gateways over HTTP: nobody votes twice, and nobody for another.

One human (ada) has a Slack and a token identity; a second (grace) only a token; a third (kim) may not vote here; a
stranger has a Slack account. They vote at once, twice, late, on lists that are not what was shown; requests are
replayed, forged and come from another workspace. `MEDEVAC_RACES=10000` runs as many (`make test-people`).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from medevac.approvals.approval import ApprovalState, ApprovalView, Verdict
from medevac.approvals.signing import Signatures
from medevac.telling.asking import APPROVE
from tests.integration.slack.far_slack import Json, interactive, press, signed
from tests.integration.slack.rig import IN_SLACK, PeopleRig

RACES = int(os.environ.get("MEDEVAC_RACES", "300"))
AT_ONCE = 12
SEED = int(os.environ.get("MEDEVAC_SEED", "7"))
STALE = "0" * 16
MAY = {"ada", "grace"}
BUTTONS = "/v1/slack/interactivity"


@dataclass
class Race:
    view: ApprovalView
    meant: set[tuple[str, str]] = field(default_factory=set)
    """Who really said what, with the list as it was shown."""
    taken: set[str] = field(default_factory=set)
    """Who was answered 200 by the API: their vote counts."""
    waiting: list[str] = field(default_factory=list)
    """Clicks that Slack was told were taken; each must be answered."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[PeopleRig]:
    rig = PeopleRig(tmp_path)
    await rig.start()
    yield rig
    await rig.close()


class Racing:
    def __init__(self, rig: PeopleRig, chance: random.Random) -> None:
        self.rig = rig
        self.chance = chance
        self.statuses: Counter[str] = Counter()

    def gateway(self) -> str:
        return self.chance.choice(self.rig.gateways).url

    async def token(self, race: Race, who: str, verdict: str, shown: str) -> None:
        if shown != STALE:
            race.meant.add((who, verdict))
        ballot = {"verdict": verdict, "shown_hash": shown, "reason": "", "via": self.chance.choice(["cli", "api"])}
        url = f"{self.gateway()}/v1/approvals/{race.view.id}/votes"
        for _ in range(600):
            answer = await self.rig.rig.http.post(url, json=ballot, headers=self.rig.token(who))
            if answer.status_code != 503:
                break
            await asyncio.sleep(0.1)
        self.statuses[f"token {answer.status_code}"] += 1
        assert answer.status_code in (200, 409), answer.text
        if answer.status_code == 200:
            # With a stale list only who has voted already: the same word twice is one, and counted as it was shown.
            assert who in MAY
            race.taken.add(who)

    async def click(self, race: Race, user: str, verdict: str, shown: str, how: str) -> None:
        who = next((who for who, id in IN_SLACK.items() if id == user), user)
        url = self.rig.slack.response_url(user)
        value = json.dumps({"a": race.view.id, "h": shown})
        payload: Json = press({"action_id": APPROVE, "value": value}, user, "C0ASKED", url=url)
        if verdict == "reject":
            kept = json.dumps({"a": race.view.id, "h": shown, "c": "C0ASKED"})
            view = {"callback_id": "medevac_reason", "private_metadata": kept}
            payload = self.rig.slack.submitted(view, user, "no") | {"url": url}
        if how == "foreign":
            payload["team"] = {"id": "T0OTHER"}
        body = interactive(payload)
        headers = signed(body)
        if how == "forged":
            headers = signed(body, secret="a secret that isn't Slack's at all")
        elif how == "old":
            headers = signed(body, stamp="1700000000")
        elif how == "altered":
            body = body.replace(b"approve", b"approvE") + b"&x=1"
        if how in ("genuine", "replayed") and shown != STALE:
            race.meant.add((who, verdict))
        targets = [self.gateway()] if how != "replayed" else [one.url for one in self.rig.gateways] * 2
        answers = await asyncio.gather(
            *(self.rig.rig.http.post(target + BUTTONS, content=body, headers=headers) for target in targets)
        )
        found = Counter(answer.status_code for answer in answers)
        self.statuses.update(f"{how} {status}" for status in found.elements())
        if how in ("genuine", "replayed"):
            assert found[200] == 1, found
            assert found[401] == len(targets) - 1
            if verdict == "approve":
                race.waiting.append(url.rpartition("/")[2])
        else:
            assert set(found) == {401}
            assert all(answer.content == b"" for answer in answers)

    async def run(self, n: int) -> Race:
        chance = self.chance
        race = Race(await self.rig.ask(f"race-{n}", chance.choice([1, 2, 2])))
        shown = race.view.shown_hash
        acts = []
        for _ in range(chance.randint(3, 8)):
            hash = STALE if chance.random() < 0.1 else shown
            verdict = "reject" if chance.random() < 0.1 else "approve"
            match chance.choice(
                ["ada", "ada", "ada in slack", "ada in slack", "grace", "kim", "stranger", "not slack"]
            ):
                case "ada in slack":
                    how = chance.choice(["genuine", "genuine", "replayed"])
                    acts.append(self.click(race, IN_SLACK["ada"], verdict, hash, how))
                case "kim":
                    if chance.random() < 0.5:
                        acts.append(self.click(race, IN_SLACK["kim"], verdict, hash, "genuine"))
                    else:
                        acts.append(self.token(race, "kim", verdict, hash))
                case "stranger":
                    acts.append(self.click(race, "U0MALLORY", verdict, hash, "genuine"))
                case "not slack":
                    how = chance.choice(["forged", "old", "foreign", "altered"])
                    acts.append(self.click(race, IN_SLACK["ada"], verdict, hash, how))
                case who:
                    acts.append(self.token(race, who, verdict, hash))
        chance.shuffle(acts)
        await asyncio.gather(*acts)
        return race


async def answered(rig: PeopleRig, races: list[Race]) -> None:
    """Every click has its answer."""
    left = {id for race in races for id in race.waiting}
    async with asyncio.timeout(400):
        while left := {id for id in left if not rig.slack._uses[id]}:  # noqa: ASYNC110  of other processes
            await asyncio.sleep(0.05)


async def written(rig: PeopleRig, race: Race) -> ApprovalView:
    """As the ledger has it, once it has every vote that somebody was told is taken."""
    async with asyncio.timeout(400):
        while True:
            view = await asyncio.to_thread(rig.rig.stores.ledger.approval, race.view.id)
            assert view is not None
            if race.taken <= {vote.voter for vote in view.votes}:
                return view
            await asyncio.sleep(0.1)


@pytest.mark.timeout(600 + 6 * RACES)
async def test_no_vote_is_double_or_forged(rig: PeopleRig) -> None:
    racing, slots = Racing(rig, random.Random(SEED)), asyncio.Semaphore(AT_ONCE)
    genuine = Signatures(rig.keys).genuine
    states: Counter[str] = Counter()
    votes = 0

    async def one(n: int) -> None:
        nonlocal votes
        async with slots:
            race = await racing.run(n)
            await answered(rig, [race])
            view = await written(rig, race)
        voters = [vote.voter.casefold() for vote in view.votes]
        assert len(set(voters)) == len(voters), f"{view.id}: somebody voted twice: {voters}"
        for vote in view.votes:
            assert genuine(vote), f"{view.id}: {vote} was not signed"
            assert vote.voter in MAY, f"{view.id}: {vote.voter} may not vote"
            assert vote.shown_hash == race.view.shown_hash
            assert (vote.voter, str(vote.verdict)) in race.meant, f"{view.id}: {vote.voter} never said {vote.verdict}"
            assert (vote.via == "slack") <= (vote.voter in IN_SLACK)
        rejects = [vote for vote in view.votes if vote.verdict is Verdict.REJECT]
        if view.state is ApprovalState.APPROVED:
            assert not rejects
            assert len(view.votes) >= view.need.threshold
        if view.state is ApprovalState.REJECTED:
            assert rejects
        states[view.state] += 1
        if (done := sum(states.values())) % 500 == 0:
            print(f"{done} races, {votes} votes", flush=True)
        votes += len(view.votes)

    await asyncio.gather(*(one(n) for n in range(RACES)))
    print(f"{RACES} races, {votes} votes, {dict(states)}, answers {dict(sorted(racing.statuses.items()))}")
    # The races were races: everything that is to be withstood has happened.
    for what in ("token 200", "token 409", "genuine 200", "replayed 401", "forged 401", "old 401", "foreign 401"):
        assert racing.statuses[what], what
    assert states[ApprovalState.APPROVED]
    assert states[ApprovalState.REJECTED]
