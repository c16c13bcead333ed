"""What people do in Slack, after it is known that Slack says so: each click and command gets an answer of its own.

Whoever acts is the person of our own record; what Slack says of names isn't read.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from activities.chat import blocks
from activities.chat.slack import SlackChat
from activities.ports import NotSent, Unclear, Unreadable
from medevac.approvals.approval import ApprovalView, Verdict
from medevac.telling.asking import APPROVE, DETAILS, REJECT, no_means, vote_of
from medevac.telling.card import Card
from worker import metrics
from worker.engine import Declined, NotRunning, Unavailable
from worker.gateway import slack_commands
from worker.gateway.authentication import AuthError
from worker.gateway.errors import Problem
from worker.gateway.people import Principal
from worker.gateway.services import Services
from worker.gateway.votes import Ballot, cast, find, record_refusal

log = logging.getLogger(__name__)

VIA = "slack"
COMMANDS = "medevac-slack"
"""Under this the ledger keeps whose commands were refused."""
READ_S = 1.0
"""For what a form is to say: the trigger that opens it is good for three seconds."""
REASON = "medevac_reason"
LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Asker:
    """Who waits for an answer, and where."""

    user: str
    channel: str = ""
    url: str = ""
    """Slack's own address for an answer to this."""


class SlackDesk:
    def __init__(self, served: Services, chat: SlackChat) -> None:
        self._served = served
        self._chat = chat
        self._team = chat.options.team

    # -- buttons and forms -------------------------------------------------------------------------------------

    async def interaction(self, user: str, payload: Mapping[str, Any]) -> None:
        kind = payload.get("type")
        if kind == "block_actions":
            asker = Asker(user, _id(payload.get("channel")) or _id(payload.get("container"), "channel_id"),
                          str(payload.get("response_url") or ""))  # fmt: skip
            pressed = list(payload.get("actions") or ())[:1]
            if pressed and isinstance(pressed[0], dict):
                await self._answered("button", asker, lambda: self._button(asker, pressed[0], payload))
        elif kind == "view_submission":
            view = payload.get("view")
            view = view if isinstance(view, dict) else {}
            if view.get("callback_id") == REASON:
                said = _json(view.get("private_metadata"))
                asker = Asker(user, str(said.get("c", "")))
                await self._answered("form", asker, lambda: self._reason(asker, said, view))

    async def _button(self, asker: Asker, action: Mapping[str, Any], payload: Mapping[str, Any]) -> str:
        pressed = action.get("action_id")
        if pressed not in (APPROVE, REJECT, DETAILS):
            return ""
        approval, shown = vote_of(str(action.get("value", "")))
        # Whom we don't know sees nothing and opens nothing.
        await self._person(asker, approval, f"the button {pressed}")
        trigger = str(payload.get("trigger_id", ""))
        if pressed == REJECT:
            # Before anything else: a trigger is good for three seconds.
            return await self._ask_reason(asker, approval, shown, trigger)
        if pressed == DETAILS:
            return await self._details(approval, trigger)
        return await self._vote(asker, approval, Verdict.APPROVE, shown, "")

    async def _vote(self, asker: Asker, approval: str, verdict: Verdict, shown: str, reason: str) -> str:
        person = await self._person(asker, approval, f"a vote to {verdict}")
        ballot = Ballot(verdict=verdict, shown_hash=shown, reason=reason)
        return await cast(self._served, person, approval, ballot)

    async def _ask_reason(self, asker: Asker, approval: str, shown: str, trigger: str) -> str:
        kept = json.dumps({"a": approval, "h": shown, "c": asker.channel}, separators=(",", ":"))
        form = [
            blocks.section(f"Rejecting {approval}. One no is enough{await self._what_a_no_does(approval)}."),
            blocks.asked_reason("Why not?", REASON, LONGEST_REASON),
        ]
        view = blocks.modal("Reject", REASON, form, submit="Reject", metadata=kept)
        try:
            await self._served.threads.run(self._chat.open_view, trigger, view)
        except (NotSent, Unclear) as error:
            return f"Slack did not open the form ({error}). Nothing is rejected yet: press again, or " \
                   f"`medevac reject {approval} --reason ...`"  # fmt: skip
        return ""

    async def _what_a_no_does(self, approval: str) -> str:
        """In words that follow others; empty where it can't be read in time, for the form must open."""
        try:
            async with asyncio.timeout(READ_S):
                return f": {no_means(await find(self._served, approval))}"
        except (TimeoutError, Problem, Unreadable):
            return ""

    async def _reason(self, asker: Asker, said: Mapping[str, Any], view: Mapping[str, Any]) -> str:
        values: Any = view.get("state") or {}
        try:
            reason = str(values["values"][REASON]["text"]["value"] or "")
        except (KeyError, TypeError):
            reason = ""
        return await self._vote(
            asker, str(said.get("a", "")), Verdict.REJECT, str(said.get("h", "")), reason[:LONGEST_REASON]
        )

    async def _details(self, approval: str, trigger: str) -> str:
        wait = blocks.modal("Details", DETAILS, [blocks.section(f"Reading what is known about {approval} …")])
        try:
            shown = await self._served.threads.run(self._chat.open_view, trigger, wait)
        except (NotSent, Unclear) as error:
            return f"Slack did not open the details ({error}); press again, or `medevac approvals`"
        view = await find(self._served, approval)
        made = await self._served.threads.run(self._listed, view)
        await self._served.threads.run(self._chat.change_view, shown, blocks.modal("Details", DETAILS, made))
        return ""

    def _listed(self, view: ApprovalView) -> list[blocks.Block]:
        """The question whole, then each who waits for it as far as a form holds them."""
        made = blocks.sections(self._card(view).fields)
        for waiter in view.waiters[:60]:
            cost = "; ".join(waiter.destroys) or "nothing"
            made.append(blocks.section(f"{waiter.node}: {waiter.text}\nDestroys: {cost}"))
        return made

    def _card(self, view: ApprovalView) -> Card:
        return self._served.cards.of(view, self._served.now())

    # -- the command -------------------------------------------------------------------------------------------

    async def command(self, user: str, form: Mapping[str, Any]) -> None:
        asker = Asker(user, str(form.get("channel_id", "")), str(form.get("response_url", "")))

        async def answer() -> str:
            words = str(form.get("text", ""))
            person = await self._person(asker, COMMANDS, f"/medevac {words}")
            try:
                said = await slack_commands.run(self._served, person, words)
            except AuthError as error:
                await record_refusal(
                    self._served, COMMANDS, f"{person.id} by {VIA}", f"/medevac {words[:200]}: {error}"
                )
                raise
            if isinstance(said, ApprovalView):
                card = await self._served.threads.run(self._card, said)
                await self._served.threads.run(self._chat.whisper_card, asker.channel, user, card)
                return ""
            return said

        await self._answered("command", asker, answer)

    # -- answers -----------------------------------------------------------------------------------------------

    async def _person(self, asker: Asker, about: str, tried: str) -> Principal:
        """Of our own record. A stranger's try is written down under `about`, the approval or `COMMANDS`."""
        person = self._served.people.in_slack(self._team, asker.user)
        if person is not None:
            return person.by(VIA)
        why = f"nobody we know tried {tried[:200]}"
        await record_refusal(self._served, about, f"slack {self._team}:{asker.user}", why)
        raise _Stranger(
            f"medevac doesn't know you. Ask its admins to add `slack: {{team: {self._team}, user: {asker.user}}}` "
            "to your entry under `people`; nothing has been done"
        )

    async def _answered(self, kind: str, asker: Asker, act: Callable[[], Awaitable[str]]) -> None:
        """Whatever becomes of it, the person is told, and nobody else is."""
        outcome, text = "done", ""
        try:
            text = await act()
        except _Stranger as error:
            outcome, text = "stranger", str(error)
        except (AuthError, Problem, Declined) as error:
            outcome, text = "told", str(error)
        except NotRunning:
            outcome, text = "told", "its workflow does not run any more; nothing has been done"
        except (Unavailable, Unreadable) as error:
            outcome, text = "failed", f"can't be done just now ({error}); nothing is known to have happened, try again"
        except ValueError as error:
            outcome, text = "told", str(error).splitlines()[0][:300]
        except (NotSent, Unclear) as error:
            outcome, text = "failed", f"Slack did not take the answer: {error}"
        except Exception:
            log.exception("a %s from Slack failed", kind)
            outcome, text = "failed", "failed inside; nothing is known to have happened, the gateway's log says more"
        metrics.SLACK.labels(kind, outcome).inc()
        if text:
            await self._tell(asker, text)

    async def _tell(self, asker: Asker, text: str) -> None:
        ways: list[tuple[Callable[..., None], tuple[str, ...]]] = []
        if asker.url:
            ways.append((self._chat.respond, (asker.url, text)))
        if asker.channel:
            ways.append((self._chat.whisper, (asker.channel, asker.user, text)))
        for way, arguments in ways:
            try:
                await self._served.threads.run(way, *arguments)
                return
            except (NotSent, Unclear) as error:
                log.warning("an answer in Slack did not arrive: %s", error)


class _Stranger(Exception):
    """Someone whom our record doesn't hold."""


def _id(value: Any, key: str = "id") -> str:
    return str(value.get(key) or "") if isinstance(value, dict) else ""


def _json(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(str(text or ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
