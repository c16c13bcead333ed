"""The storage of one process, opened once."""

from __future__ import annotations

from dataclasses import dataclass

from activities.guard.store import GuardStore
from activities.storage.campaigns import Campaigns
from activities.storage.cases import Cases
from activities.storage.certificates import Certificates
from activities.storage.database import Database
from activities.storage.dead_letters import DeadLetters
from activities.storage.dwells import Dwells
from activities.storage.fences import Fences
from activities.storage.inbox import Inbox
from activities.storage.intake import IntakeStore
from activities.storage.intents import Intents
from activities.storage.leaders import Leaders
from activities.storage.ledger import Ledger
from activities.storage.policies import Policies
from activities.storage.posts import Posts
from activities.storage.scorecards import Scorecards
from activities.storage.silences import Silences
from activities.storage.views import Views


@dataclass(frozen=True, slots=True)
class Stores:
    database: Database
    ledger: Ledger
    intents: Intents
    fences: Fences
    policies: Policies
    dwells: Dwells
    inbox: Inbox
    intake: IntakeStore
    dead_letters: DeadLetters
    leaders: Leaders
    guard: GuardStore
    campaigns: Campaigns
    cases: Cases
    views: Views
    posts: Posts
    certificates: Certificates
    scorecards: Scorecards
    silences: Silences


def open_stores(url: str) -> Stores:
    """Opens no connection yet. `Stores.database.check()` says whether the schema is at head."""
    database = Database(url)
    policies = Policies(database)
    return Stores(
        database=database,
        ledger=Ledger(database),
        intents=Intents(database),
        fences=Fences(database),
        policies=policies,
        dwells=Dwells(database),
        inbox=Inbox(database),
        intake=IntakeStore(database),
        dead_letters=DeadLetters(database),
        leaders=Leaders(database),
        guard=GuardStore(database, policies),
        campaigns=Campaigns(database),
        cases=Cases(database),
        views=Views(database),
        posts=Posts(database),
        certificates=Certificates(database),
        scorecards=Scorecards(database),
        silences=Silences(database),
    )
