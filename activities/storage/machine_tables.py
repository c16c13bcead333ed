"""Tables of machines and their providers: cases, parts that came back bad, proofs of providers."""

from __future__ import annotations

import sqlalchemy as sa

from activities.storage.columns import Json, Moment, Words
from activities.storage.tables import metadata

cases = sa.Table(
    "cases",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("system", Words, nullable=False),
    sa.Column("provider", Words, nullable=False),
    sa.Column("ticket", Words),
    sa.Column("state", Words, nullable=False),
    sa.Column("opened_at", Moment, nullable=False),
    sa.Column("updated_at", Moment, nullable=False),
    sa.Column("rev", sa.Integer, nullable=False),
    sa.Column("view", Json, nullable=False),
    sa.Index(None, "state"),
    sa.Index(None, "system", "ticket"),
    sa.Index(None, "provider", "opened_at"),
)

case_incidents = sa.Table(
    "case_incidents",
    metadata,
    sa.Column("case", Words, primary_key=True),
    sa.Column("incident", Words, primary_key=True),
    sa.Column("at", Moment, nullable=False),
    sa.Index(None, "incident"),
)

bad_parts = sa.Table(
    "bad_parts",
    metadata,
    sa.Column("serial", Words, primary_key=True),
    sa.Column("incident", Words, primary_key=True),
    sa.Column("part", Words, nullable=False),
    sa.Column("machine_id", Words, nullable=False),
    sa.Column("why", Words, nullable=False),
    sa.Column("at", Moment, nullable=False),
)
"""Serials of parts that were sent back: one that returns is known again."""

certificates = sa.Table(
    "certificates",
    metadata,
    sa.Column("provider", Words, primary_key=True),
    sa.Column("at", Moment, primary_key=True),
    sa.Column("by", Words, nullable=False),
    sa.Column("machine_id", Words, nullable=False),
    sa.Column("passed", sa.Boolean, nullable=False),
    sa.Column("proof", Json, nullable=False),
)
"""What `medevac provider certify` saw a provider do on a real machine."""
