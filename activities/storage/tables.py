"""Every table of the ledger's database, the same on SQLite and PostgreSQL.

Times are stored in UTC. A model that people see lies whole in a JSON column, beside the columns it is searched by.
"""

from __future__ import annotations

import sqlalchemy as sa

from activities.storage.columns import Json, Moment, Words

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _id() -> sa.Column[int]:
    big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("id", big, primary_key=True, autoincrement=True)


# -- what was heard, decided and done --------------------------------------------------------------------------

incidents = sa.Table(
    "incidents",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("cluster", Words, nullable=False),
    sa.Column("node", Words, nullable=False),
    sa.Column("machine_id", Words),
    sa.Column("fault", Words),
    sa.Column("fault_class", Words),
    sa.Column("state", Words, nullable=False),
    sa.Column("end", Words),
    sa.Column("open", sa.Boolean, nullable=False),
    sa.Column("opened_at", Moment, nullable=False),
    sa.Column("updated_at", Moment, nullable=False),
    sa.Column("step", Words, nullable=False),
    sa.Column("due_at", Moment),
    sa.Column("rev", sa.Integer, nullable=False),
    sa.Column("view", Json, nullable=False),
    sa.Index(None, "cluster", "node", "open"),
    sa.Index(None, "machine_id", "opened_at"),
    sa.Index(None, "open", "due_at"),
)

lines = sa.Table(
    "lines",
    metadata,
    _id(),
    sa.Column("incident", Words, nullable=False),
    sa.Column("step", Words, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("kind", Words, nullable=False),
    sa.Column("digest", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("text", Words, nullable=False),
    sa.Column("data", Json, nullable=False),
    sa.UniqueConstraint("incident", "step", "n", "kind", "digest"),
)

events = sa.Table(
    "events",
    metadata,
    _id(),
    sa.Column("at", Moment, nullable=False),
    sa.Column("source", Words, nullable=False),
    sa.Column("sender", Words, nullable=False),
    sa.Column("event_id", Words, nullable=False),
    sa.Column("cluster", Words),
    sa.Column("node", Words),
    sa.Column("kind", Words, nullable=False),
    sa.Column("fault", Words),
    sa.Column("fault_class", Words),
    sa.Column("outcome", Words, nullable=False),
    sa.Column("digest", Words, nullable=False),
    sa.Column("event", Json, nullable=False),
    sa.Index(None, "at"),
    sa.Index(None, "cluster", "node", "at"),
)

approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("state", Words, nullable=False),
    sa.Column("requested_at", Moment, nullable=False),
    sa.Column("expires_at", Moment, nullable=False),
    sa.Column("rev", sa.Integer, nullable=False),
    sa.Column("view", Json, nullable=False),
    sa.Index(None, "state", "requested_at"),
)

latches = sa.Table(
    "latches",
    metadata,
    _id(),
    sa.Column("machine_id", Words, nullable=False),
    sa.Column("incident", Words, nullable=False),
    sa.Column("why", Words, nullable=False),
    sa.Column("faults", Json, nullable=False),
    sa.Column("by", Words, nullable=False),
    sa.Column("until", Moment, nullable=False),
    sa.Column("digest", Words, nullable=False, unique=True),
    sa.Index(None, "machine_id", "until"),
)

successors = sa.Table(
    "successors",
    metadata,
    sa.Column("old_machine", Words, primary_key=True),
    sa.Column("new_machine", Words, primary_key=True),
    sa.Column("incident", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Index(None, "new_machine", "at"),
)

notes = sa.Table(
    "notes",
    metadata,
    _id(),
    sa.Column("cluster", Words, nullable=False),
    sa.Column("node", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("text", Words, nullable=False),
    sa.Column("digest", Words, nullable=False, unique=True),
    sa.Index(None, "cluster", "node", "at"),
)

# -- what makes effects once-only, and what stops them ---------------------------------------------------------

intents = sa.Table(
    "intents",
    metadata,
    sa.Column("incident", Words, primary_key=True),
    sa.Column("step", Words, primary_key=True),
    sa.Column("n", sa.Integer, primary_key=True),
    sa.Column("verb", Words, nullable=False),
    sa.Column("cluster", Words, nullable=False),
    sa.Column("node", Words, nullable=False),
    sa.Column("machine_id", Words, nullable=False),
    sa.Column("boot_id", Words),
    sa.Column("rung", Words, nullable=False),
    sa.Column("fault", Words, nullable=False),
    sa.Column("fault_class", Words, nullable=False),
    sa.Column("before", Json),
    sa.Column("at", Moment, nullable=False),
    sa.Column("sent_at", Moment),
    sa.Column("answer", Json),
    sa.Column("void_at", Moment),
    sa.Column("void_reason", Words),
    sa.Column("outcome", Words),
    sa.Index(None, "machine_id", "at"),
)

fences = sa.Table(
    "fences",
    metadata,
    _id(),
    sa.Column("scope", Words, nullable=False),
    sa.Column("by", Words, nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("marks", sa.Boolean, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("via", Words, nullable=False, server_default=""),
    sa.Column("thaw_votes", Json, nullable=False),
    sa.Column("thawed_at", Moment),
    sa.Index(None, "thawed_at", "scope"),
)

policies = sa.Table(
    "policies",
    metadata,
    _id(),
    sa.Column("hash", Words, nullable=False),
    sa.Column("text", Words, nullable=False),
    sa.Column("text_digest", Words, nullable=False, unique=True),
    sa.Column("author", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
)

activations = sa.Table(
    "activations",
    metadata,
    _id(),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("by", Words),
    sa.Column("at", Moment, nullable=False),
)

dwells = sa.Table(
    "dwells",
    metadata,
    sa.Column("cluster", Words, primary_key=True),
    sa.Column("node", Words, primary_key=True),
    sa.Column("entity", Words, primary_key=True),
    sa.Column("name", Words, primary_key=True),
    sa.Column("state", Json),
)

inbox = sa.Table(
    "inbox",
    metadata,
    _id(),
    sa.Column("key", Words, nullable=False, unique=True),
    sa.Column("at", Moment, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("lane", Words, nullable=False, server_default=""),
    sa.Column("due_at", Moment),
    sa.Column("family", Words, nullable=False, server_default=""),
    sa.Column("turn", sa.Float, nullable=False, server_default="0"),
    sa.Index(None, "lane", "turn", "id"),
    sa.Index(None, "family"),
)
"""Items of one `lane` are taken by their `turn`, those of one `family` always in their order; `due_at` is when the lane
is looked at again (null: at once)."""

said = sa.Table(
    "said",
    metadata,
    sa.Column("key", Words, primary_key=True),
    sa.Column("words", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Index(None, "at"),
)
"""What each sender said last under each of its keys, and has been held of it; every gateway tells repeats by it.
And what each watcher has raised on a node (`raised.py`)."""

dead_letters = sa.Table(
    "dead_letters",
    metadata,
    _id(),
    sa.Column("digest", Words, nullable=False, unique=True),
    sa.Column("source", Words, nullable=False),
    sa.Column("sender", Words, nullable=False),
    sa.Column("why", Words, nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("headers", Json, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("whole", sa.Boolean, nullable=False),
    sa.Column("times", sa.Integer, nullable=False),
    sa.Column("first_at", Moment, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("taken_at", Moment),
    sa.Index(None, "taken_at", "at"),
)

leaders = sa.Table(
    "leaders",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("holder", Words, nullable=False),
    sa.Column("until", Moment, nullable=False),
)
"""Which process does what only one should do at a time."""

# -- the guard -------------------------------------------------------------------------------------------------

guard = sa.Table(
    "guard",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("question", Json),
    sa.Column("stamp", Words, nullable=False),
)
"""One row, whose lock is the guard's. `question` is the fleet-wide approval that is asked for; `stamp` is another one
after each change of the guard's rows, so that a process knows whether what it remembers is still so."""

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("lease_id", Words, primary_key=True),
    sa.Column("incident", Words, nullable=False),
    sa.Column("workflow_id", Words, nullable=False),
    sa.Column("cluster", Words, nullable=False),
    sa.Column("node", Words, nullable=False),
    sa.Column("gang", Words),
    sa.Column("domains", Json, nullable=False),
    sa.Column("fault_class", Words, nullable=False),
    sa.Column("plan_hash", Words, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("granted_at", Moment, nullable=False),
    sa.Column("until", Moment, nullable=False),
)

grants = sa.Table(
    "grants",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("lease_id", Words, nullable=False),
    sa.Column("edge", Words, nullable=False),
    sa.Column("incident", Words, nullable=False),
    sa.Column("cluster", Words, nullable=False),
    sa.Column("pool", Words, nullable=False),
    sa.Column("node", Words, nullable=False),
    sa.Column("fault_class", Words, nullable=False),
    sa.Column("approval", Words),
    sa.Column("at", Moment, nullable=False),
    sa.Index(None, "at"),
)

sightings = sa.Table(
    "sightings",
    metadata,
    sa.Column("fault_class", Words, primary_key=True),
    sa.Column("cluster", Words, primary_key=True),
    sa.Column("node", Words, primary_key=True),
    sa.Column("incident", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Index(None, "fault_class", "at"),
)

queue = sa.Table(
    "queue",
    metadata,
    sa.Column("lease_id", Words, primary_key=True),
    sa.Column("incident", Words, nullable=False),
    sa.Column("workflow_id", Words, nullable=False),
    sa.Column("cluster", Words, nullable=False),
    sa.Column("node", Words, nullable=False),
    sa.Column("gang", Words),
    sa.Column("domains", Json, nullable=False),
    sa.Column("turn", Moment, nullable=False),
    sa.Column("blocked", Words, nullable=False),
    sa.Column("ours", sa.Boolean, nullable=False),
    sa.Column("gone_after", Moment, nullable=False),
)

asked = sa.Table(
    "asked",
    metadata,
    sa.Column("incident", Words, primary_key=True),
    sa.Column("approval", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
)

breakers = sa.Table(
    "breakers",
    metadata,
    sa.Column("cluster", Words, primary_key=True),
    sa.Column("cause", Words, primary_key=True),
    sa.Column("opened_at", Moment, nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("votes", Json, nullable=False),
    sa.Column("closed_at", Moment),
)
