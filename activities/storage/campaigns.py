"""Campaigns as the ledger holds them: the plan that people agreed to, the state, and how far each node is.

The state in this row is what is read before anything is destroyed in a campaign's name; a message only makes it quick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy.engine import Connection, Row

from activities.storage.database import Database
from activities.storage.ledger import LedgerLine, put_line
from activities.storage.order_tables import campaign_nodes as n
from activities.storage.order_tables import campaigns as t
from activities.storage.tables import lines
from medevac.campaigns.going_on import Said, Standing, Weighed, weigh
from medevac.campaigns.halting import Evidence
from medevac.campaigns.listing import CampaignPlan, Member
from medevac.campaigns.progress import CampaignState, NodeProgress, NodeState, ordered
from medevac.fleet.order import Order
from medevac.incident import Line, StepKey
from medevac.model import Model
from medevac.policy.plan import ApprovalNeed

WANTS = "-wanted"
WANTED = frozenset({f"resume{WANTS}", f"widen{WANTS}"})
"""Steps of the lines that hold one person's word where it takes several."""
LINE = "campaign"
"""Kind of the ledger lines that tell what was ordered of a campaign, and where it stopped by itself."""


class Known(ValueError):
    """There is a campaign of that name; names are not used again."""


class CampaignRow(Model):
    id: str
    state: CampaignState
    passed: int
    """Stages that are behind."""
    why: str
    at_once: int
    approval: str
    plan_hash: str
    requested_by: str
    at: datetime
    updated_at: datetime
    began_at: datetime | None = None
    ended_at: datetime | None = None
    plan: CampaignPlan
    known: Evidence | None = None
    """What had been seen when people let it go on after a halt."""
    out: dict[str, float] | None = None
    """Percent of each pool that was out of service by other causes, at the last look."""

    @property
    def order(self) -> Order:
        """For any machine of the list."""
        spec = self.plan.spec
        return Order(
            campaign=self.id,
            approval=self.approval,
            rung=spec.act.rung,
            drain=spec.drain.value,
            image=spec.image,
            deadline_s=spec.care.deadline,
        )

    def order_for(self, member: Member) -> Order:
        return self.order.of(member.uid, member.machine_id)


class Word(Model):
    """An order, or the campaign's own stop: what the ledger keeps of it, whatever state comes next."""

    step: str
    """`start`, `pause`, `halt`, `resume`, `widen` or `end`; one of several words to go on: one of `WANTED`."""
    text: str
    """Who, by what way, why."""
    data: dict[str, JsonValue] = {}

    @classmethod
    def of(cls, step: str, by: str, via: str, reason: str) -> Word:
        """A person's."""
        text = f"{step} by {by} ({via}){f': {reason}' if reason else ''}"
        return cls(step=step, text=text, data={"by": by, "via": via, "reason": reason})


class Voter(Model):
    """Who says that a campaign may go on, as the gateway knows them; by what way, and why."""

    id: str
    groups: tuple[str, ...]
    via: str
    reason: str = ""

    def wants(self, what: str, said: Said, missing: str) -> Word:
        reason = f": {self.reason}" if self.reason else ""
        text = f"{what} wanted by {self.id} ({self.via}){reason}; missing: {missing}"
        data: dict[str, JsonValue] = {"by": self.id, "via": self.via, "reason": self.reason}
        return Word(step=f"{what}{WANTS}", text=text, data={**data, "said": said.model_dump(mode="json")})


class Campaigns:
    def __init__(self, db: Database) -> None:
        self._db = db

    def put(self, plan: CampaignPlan, approval: str, at: datetime, word: Word | None = None) -> CampaignRow:
        """Raises `Known`."""
        row = CampaignRow(
            id=plan.spec.id,
            state=CampaignState.ASKED,
            passed=0,
            why="waits for people's yes",
            at_once=plan.at_once,
            approval=approval,
            plan_hash=plan.hash,
            requested_by=plan.spec.requested_by,
            at=at,
            updated_at=at,
            plan=plan,
        )
        members = [
            {
                "campaign": row.id,
                "cluster": m.cluster,
                "node": m.node,
                "position": i,
                "state": NodeState.WAITING,
                "why": "",
            }
            for i, m in enumerate(plan.members)
        ]
        try:
            with self._db.transaction() as connection:
                fields = row.model_dump(exclude={"plan", "known", "out"})
                connection.execute(sa.insert(t).values(**fields, plan=plan.model_dump(mode="json")))
                connection.execute(sa.insert(n), members)
                if word is not None:
                    _say(connection, row.id, word, at)
        except sa.exc.IntegrityError as error:
            raise Known(f"there is a campaign {row.id} already; take another name") from error
        return row

    def get(self, id: str) -> CampaignRow | None:
        with self._db.reading() as connection:
            row = connection.execute(sa.select(t).where(t.c.id == id)).one_or_none()
            return None if row is None else _row(row)

    def all(self, open_only: bool = False, limit: int = 100) -> list[CampaignRow]:
        """Newest first."""
        query = sa.select(t).order_by(t.c.at.desc()).limit(limit)
        if open_only:
            query = query.where(t.c.state != CampaignState.ENDED)
        with self._db.reading() as connection:
            return [_row(row) for row in connection.execute(query)]

    def nodes(self, id: str) -> list[NodeProgress]:
        """In the plan's order."""
        query = sa.select(n).where(n.c.campaign == id).order_by(n.c.position)
        with self._db.reading() as connection:
            return [_node(row) for row in connection.execute(query)]

    def move(
        self, id: str, state: CampaignState, why: str, at: datetime, *, passed: int | None = None,
        known: Evidence | None = None, only_from: Sequence[CampaignState] = (), word: Word | None = None,
    ) -> bool:  # fmt: skip
        """False where it isn't in one of `only_from`; an ended one is never moved. `word` is kept where it is moved."""
        allowed = [one for one in only_from or CampaignState if one is not CampaignState.ENDED]
        with self._db.transaction() as connection:
            return _move(connection, id, state, why, at, allowed, word, {"passed": passed, "known": known})

    def agree(
        self, id: str, what: str, to: CampaignState, by: Voter, at: datetime, need: ApprovalNeed, *,
        only_from: Sequence[CampaignState], passed: int, bad: int, requested_by: str,
        to_stage: int | None = None, known: Evidence | None = None,
    ) -> Weighed | None:  # fmt: skip
        """One person's word to let it go on, weighed with the others' in one transaction: it is moved with the last of
        those that are needed. `passed` and `bad`: as they were shown. `to_stage`, `known`: what changes with the move.

        None where it isn't in one of `only_from`, or has passed a stage meanwhile.
        """
        states = [one for one in only_from if one is not CampaignState.ENDED]
        with self._db.transaction() as connection:
            locked = sa.select(t.c.id).where(t.c.id == id, t.c.state.in_(states), t.c.passed == passed)
            if connection.execute(locked.with_for_update()).one_or_none() is None:
                return None
            told = _words(connection, id)
            order = max((one.key.n for one in told if one.key.step not in WANTED), default=0)
            stands = Standing(order=order, passed=passed, bad=bad)
            said = [Said.stored(one.data["said"]) for one in told if one.key.step in WANTED]
            weighed = weigh(need, requested_by, said, what, stands, at)
            if by.id not in weighed.by:
                one = Said(what=what, by=by.id, groups=by.groups, at=at, to=stands)
                weighed = weigh(need, requested_by, (*said, one), what, stands, at)
                if weighed.missing:
                    _say(connection, id, by.wants(what, one, weighed.missing), at)
            if not weighed.missing:
                people = " and ".join(weighed.by)
                word = Word.of(what, people, by.via, by.reason)
                word = word.model_copy(update={"data": {**word.data, "by": by.id, "people": list(weighed.by)}})
                _move(
                    connection, id, to, ordered(to, people, by.reason), at, states, word,
                    {"passed": to_stage, "known": known},
                )  # fmt: skip
            return weighed

    def looked(self, id: str, out: Mapping[str, float], known: Evidence | None) -> None:
        """What a look has shown beside the nodes; `known` where less of it is weighed now than before."""
        values: dict[str, Any] = {"out": dict(out)}
        if known is not None:
            values["known"] = known.model_dump(mode="json")
        with self._db.transaction() as connection:
            connection.execute(sa.update(t).where(t.c.id == id).values(**values))

    def words(self, id: str, after: int = 0) -> list[LedgerLine]:
        """What was ordered of it and where it stopped by itself, in order; those of a number above `after`."""
        with self._db.reading() as connection:
            return _words(connection, id, after)

    def change(self, id: str, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Of nodes by their key `cluster/node`."""
        with self._db.transaction() as connection:
            for key, values in changes.items():
                cluster, _, node = key.partition("/")
                where = (n.c.campaign == id) & (n.c.cluster == cluster) & (n.c.node == node)
                connection.execute(sa.update(n).where(where).values(**values))

    def why_not(self, order: Order, cluster: str, node: str) -> str:
        """Empty where the order stands: on the list, sent, and its campaign neither halted nor over."""
        query = (
            sa.select(t.c.state, t.c.why, n.c.state.label("node_state"))
            .join(n, n.c.campaign == t.c.id)
            .where(t.c.id == order.campaign, n.c.cluster == cluster, n.c.node == node)
        )
        with self._db.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return f"{node} is not on the list of campaign {order.campaign}"
        if not (CampaignState(row.state).begins or row.state == CampaignState.PAUSED):
            return f"campaign {order.campaign} is {row.state}: {row.why}"
        return "" if row.node_state == NodeState.SENT else f"campaign {order.campaign} has taken {node} back"


def _move(
    connection: Connection, id: str, state: CampaignState, why: str, at: datetime, allowed: Sequence[CampaignState],
    word: Word | None, more: Mapping[str, Any],
) -> bool:  # fmt: skip
    """`more`: stages that are behind, and what was known, where they change."""
    values: dict[str, Any] = {"state": state, "why": why, "updated_at": at}
    if more.get("passed") is not None:
        values["passed"] = more["passed"]
    if (known := more.get("known")) is not None:
        values["known"] = known.model_dump(mode="json")
    if state is CampaignState.ENDED:
        values["ended_at"] = at
    if state.begins:
        values["began_at"] = sa.func.coalesce(t.c.began_at, sa.literal(at, t.c.at.type))
    query = sa.update(t).where(t.c.id == id, t.c.state.in_(allowed)).values(**values)
    moved = connection.execute(query).rowcount == 1
    if moved and word is not None:
        _say(connection, id, word, at)
    return moved


def _words(connection: Connection, id: str, after: int = 0) -> list[LedgerLine]:
    mine = (lines.c.incident == id) & (lines.c.kind == LINE) & (lines.c.n > after)
    return [
        LedgerLine(
            key=StepKey(incident=id, step=row.step, n=row.n),
            at=row.at, kind=row.kind, text=row.text, data=row.data, flagged=False,
        )
        for row in connection.execute(sa.select(lines).where(mine).order_by(lines.c.n))
    ]  # fmt: skip


def _say(connection: Connection, id: str, word: Word, at: datetime) -> None:
    """In the transaction that has just written the campaign's row: nobody else numbers its lines meanwhile."""
    mine = (lines.c.incident == id) & (lines.c.kind == LINE)
    last = connection.execute(sa.select(sa.func.max(lines.c.n)).where(mine)).scalar_one() or 0
    key = StepKey(incident=id, step=word.step, n=last + 1)
    put_line(connection, Line(key=key, at=at, kind=LINE, text=word.text, data=word.data))


def _row(row: Row[Any]) -> CampaignRow:
    return CampaignRow.stored({name: getattr(row, name) for name in CampaignRow.model_fields})


def _node(row: Row[Any]) -> NodeProgress:
    return NodeProgress.stored({name: getattr(row, name) for name in NodeProgress.model_fields})
