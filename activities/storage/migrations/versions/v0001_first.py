"""The ledger, its once-only rows, and the guard"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0001"
down_revision: str | None = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "activations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_activations")),
    )
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rev", sa.Integer(), nullable=False),
        sa.Column("view", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
    )
    op.create_index(op.f("ix_approvals_state_requested_at"), "approvals", ["state", "requested_at"], unique=False)
    op.create_table(
        "asked",
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("approval", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("incident", name=op.f("pk_asked")),
    )
    op.create_table(
        "breakers",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("votes", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "cause", name=op.f("pk_breakers")),
    )
    op.create_table(
        "dwells",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "node", "entity", "name", name=op.f("pk_dwells")),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=True),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("fault_class", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("event", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_at"), "events", ["at"], unique=False)
    op.create_index(op.f("ix_events_cluster_node_at"), "events", ["cluster", "node", "at"], unique=False)
    op.create_table(
        "fences",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("marks", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("thaw_votes", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.Column("thawed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fences")),
    )
    op.create_index(op.f("ix_fences_thawed_at_scope"), "fences", ["thawed_at", "scope"], unique=False)
    op.create_table(
        "grants",
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("lease_id", sa.Text(), nullable=False),
        sa.Column("edge", sa.Text(), nullable=False),
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("fault_class", sa.Text(), nullable=False),
        sa.Column("approval", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("epoch", name=op.f("pk_grants")),
    )
    op.create_index(op.f("ix_grants_at"), "grants", ["at"], unique=False)
    op.create_table(
        "guard",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("question", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=True),
        sa.Column("stamp", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_guard")),
    )
    op.create_table(
        "inbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inbox")),
        sa.UniqueConstraint("key", name=op.f("uq_inbox_key")),
    )
    op.create_table(
        "incidents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=True),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("fault_class", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("end", sa.Text(), nullable=True),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rev", sa.Integer(), nullable=False),
        sa.Column("view", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
    )
    op.create_index(op.f("ix_incidents_cluster_node_open"), "incidents", ["cluster", "node", "open"], unique=False)
    op.create_index(op.f("ix_incidents_machine_id_opened_at"), "incidents", ["machine_id", "opened_at"], unique=False)
    op.create_index(op.f("ix_incidents_open_due_at"), "incidents", ["open", "due_at"], unique=False)
    op.create_table(
        "intents",
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=True),
        sa.Column("rung", sa.Text(), nullable=False),
        sa.Column("fault", sa.Text(), nullable=False),
        sa.Column("fault_class", sa.Text(), nullable=False),
        sa.Column("before", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("answer", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=True),
        sa.Column("void_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("void_reason", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("incident", "step", "n", name=op.f("pk_intents")),
    )
    op.create_index(op.f("ix_intents_machine_id_at"), "intents", ["machine_id", "at"], unique=False)
    op.create_table(
        "latches",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=False),
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("faults", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_latches")),
        sa.UniqueConstraint("digest", name=op.f("uq_latches_digest")),
    )
    op.create_index(op.f("ix_latches_machine_id_until"), "latches", ["machine_id", "until"], unique=False)
    op.create_table(
        "leases",
        sa.Column("lease_id", sa.Text(), nullable=False),
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("gang", sa.Text(), nullable=True),
        sa.Column("domains", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.Column("fault_class", sa.Text(), nullable=False),
        sa.Column("plan_hash", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("granted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("pk_leases")),
    )
    op.create_table(
        "lines",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lines")),
        sa.UniqueConstraint(
            "incident", "step", "n", "kind", "digest", name=op.f("uq_lines_incident_step_n_kind_digest")
        ),
    )
    op.create_table(
        "notes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notes")),
        sa.UniqueConstraint("digest", name=op.f("uq_notes_digest")),
    )
    op.create_index(op.f("ix_notes_cluster_node_at"), "notes", ["cluster", "node", "at"], unique=False)
    op.create_table(
        "policies",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("text_digest", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
        sa.UniqueConstraint("text_digest", name=op.f("uq_policies_text_digest")),
    )
    op.create_table(
        "queue",
        sa.Column("lease_id", sa.Text(), nullable=False),
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("gang", sa.Text(), nullable=True),
        sa.Column("domains", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.Column("turn", sa.DateTime(timezone=True), nullable=False),
        sa.Column("blocked", sa.Text(), nullable=False),
        sa.Column("ours", sa.Boolean(), nullable=False),
        sa.Column("gone_after", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("pk_queue")),
    )
    op.create_table(
        "sightings",
        sa.Column("fault_class", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("fault_class", "cluster", "node", name=op.f("pk_sightings")),
    )
    op.create_index(op.f("ix_sightings_fault_class_at"), "sightings", ["fault_class", "at"], unique=False)
    op.create_table(
        "successors",
        sa.Column("old_machine", sa.Text(), nullable=False),
        sa.Column("new_machine", sa.Text(), nullable=False),
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("old_machine", "new_machine", name=op.f("pk_successors")),
    )
    op.create_index(op.f("ix_successors_new_machine_at"), "successors", ["new_machine", "at"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_successors_new_machine_at"), table_name="successors")
    op.drop_table("successors")
    op.drop_index(op.f("ix_sightings_fault_class_at"), table_name="sightings")
    op.drop_table("sightings")
    op.drop_table("queue")
    op.drop_table("policies")
    op.drop_index(op.f("ix_notes_cluster_node_at"), table_name="notes")
    op.drop_table("notes")
    op.drop_table("lines")
    op.drop_table("leases")
    op.drop_index(op.f("ix_latches_machine_id_until"), table_name="latches")
    op.drop_table("latches")
    op.drop_index(op.f("ix_intents_machine_id_at"), table_name="intents")
    op.drop_table("intents")
    op.drop_index(op.f("ix_incidents_open_due_at"), table_name="incidents")
    op.drop_index(op.f("ix_incidents_machine_id_opened_at"), table_name="incidents")
    op.drop_index(op.f("ix_incidents_cluster_node_open"), table_name="incidents")
    op.drop_table("incidents")
    op.drop_table("inbox")
    op.drop_table("guard")
    op.drop_index(op.f("ix_grants_at"), table_name="grants")
    op.drop_table("grants")
    op.drop_index(op.f("ix_fences_thawed_at_scope"), table_name="fences")
    op.drop_table("fences")
    op.drop_index(op.f("ix_events_cluster_node_at"), table_name="events")
    op.drop_index(op.f("ix_events_at"), table_name="events")
    op.drop_table("events")
    op.drop_table("dwells")
    op.drop_table("breakers")
    op.drop_table("asked")
    op.drop_index(op.f("ix_approvals_state_requested_at"), table_name="approvals")
    op.drop_table("approvals")
    op.drop_table("activations")
