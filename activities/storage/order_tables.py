"""Tables of what people order, hold back and are told: campaigns, silences, posts."""

from __future__ import annotations

import sqlalchemy as sa

from activities.storage.columns import Json, Moment, Words
from activities.storage.tables import metadata

campaigns = sa.Table(
    "campaigns",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("state", Words, nullable=False),
    sa.Column("passed", sa.Integer, nullable=False),
    sa.Column("why", Words, nullable=False),
    sa.Column("at_once", sa.Integer, nullable=False),
    sa.Column("approval", Words, nullable=False),
    sa.Column("plan_hash", Words, nullable=False),
    sa.Column("requested_by", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("updated_at", Moment, nullable=False),
    sa.Column("began_at", Moment),
    sa.Column("ended_at", Moment),
    sa.Column("plan", Json, nullable=False),
    sa.Column("known", Json),
    sa.Column("out", Json),
    sa.Index(None, "state", "at"),
)

campaign_nodes = sa.Table(
    "campaign_nodes",
    metadata,
    sa.Column("campaign", Words, primary_key=True),
    sa.Column("cluster", Words, primary_key=True),
    sa.Column("node", Words, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("state", Words, nullable=False),
    sa.Column("why", Words, nullable=False),
    sa.Column("sent_at", Moment),
    sa.Column("over_at", Moment),
    sa.Column("by", Words),
    sa.Column("incident", Words),
    sa.Column("fault", Words),
    sa.Column("job", Words),
    sa.Column("run", sa.Integer, nullable=False, server_default="0"),
    sa.Index(None, "cluster", "node", "state"),
)

silences = sa.Table(
    "silences",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("by", Words, nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("until", Moment, nullable=False),
    sa.Column("ended_at", Moment),
    sa.Column("ended_by", Words),
    sa.Column("via", Words, nullable=False, server_default=""),
    sa.Column("ended_via", Words, nullable=False, server_default=""),
    sa.Column("silence", Json, nullable=False),
    sa.Index(None, "until"),
)

posts = sa.Table(
    "posts",
    metadata,
    sa.Column("key", Words, primary_key=True),
    sa.Column("system", Words, primary_key=True),
    sa.Column("channel", Words, nullable=False),
    sa.Column("reference", Words, nullable=False),
    sa.Column("digest", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("over", sa.Boolean, nullable=False),
    sa.Index(None, "over", "at"),
)
"""Where a message stands in a chat or paging system, so that it is updated in place and resolved by us."""
