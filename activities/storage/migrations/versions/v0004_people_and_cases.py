"""What people order and are told: campaigns, silences, posts; cases of providers, bad parts, certificates"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "bad_parts",
        sa.Column("serial", sa.Text(), nullable=False),
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("serial", "incident", name=op.f("pk_bad_parts")),
    )
    op.create_table(
        "campaign_nodes",
        sa.Column("campaign", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("over_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("incident", sa.Text(), nullable=True),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("job", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("campaign", "cluster", "node", name=op.f("pk_campaign_nodes")),
    )
    op.create_index(
        op.f("ix_campaign_nodes_cluster_node_state"), "campaign_nodes", ["cluster", "node", "state"], unique=False
    )
    op.create_table(
        "campaigns",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("passed", sa.Integer(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at_once", sa.Integer(), nullable=False),
        sa.Column("approval", sa.Text(), nullable=False),
        sa.Column("plan_hash", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("plan", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaigns")),
    )
    op.create_index(op.f("ix_campaigns_state_at"), "campaigns", ["state", "at"], unique=False)
    op.create_table(
        "case_incidents",
        sa.Column("case", sa.Text(), nullable=False),
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("case", "incident", name=op.f("pk_case_incidents")),
    )
    op.create_index(op.f("ix_case_incidents_incident"), "case_incidents", ["incident"], unique=False)
    op.create_table(
        "cases",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("system", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("ticket", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rev", sa.Integer(), nullable=False),
        sa.Column("view", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cases")),
    )
    op.create_index(op.f("ix_cases_provider_opened_at"), "cases", ["provider", "opened_at"], unique=False)
    op.create_index(op.f("ix_cases_state"), "cases", ["state"], unique=False)
    op.create_index(op.f("ix_cases_system_ticket"), "cases", ["system", "ticket"], unique=False)
    op.create_table(
        "certificates",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("proof", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("provider", "at", name=op.f("pk_certificates")),
    )
    op.create_table(
        "posts",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("system", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("over", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("key", "system", name=op.f("pk_posts")),
    )
    op.create_index(op.f("ix_posts_over_at"), "posts", ["over", "at"], unique=False)
    op.create_table(
        "silences",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.Column("silence", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silences")),
    )
    op.create_index(op.f("ix_silences_until"), "silences", ["until"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_silences_until"), table_name="silences")
    op.drop_table("silences")
    op.drop_index(op.f("ix_posts_over_at"), table_name="posts")
    op.drop_table("posts")
    op.drop_table("certificates")
    op.drop_index(op.f("ix_cases_system_ticket"), table_name="cases")
    op.drop_index(op.f("ix_cases_state"), table_name="cases")
    op.drop_index(op.f("ix_cases_provider_opened_at"), table_name="cases")
    op.drop_table("cases")
    op.drop_index(op.f("ix_case_incidents_incident"), table_name="case_incidents")
    op.drop_table("case_incidents")
    op.drop_index(op.f("ix_campaigns_state_at"), table_name="campaigns")
    op.drop_table("campaigns")
    op.drop_index(op.f("ix_campaign_nodes_cluster_node_state"), table_name="campaign_nodes")
    op.drop_table("campaign_nodes")
    op.drop_table("bad_parts")
