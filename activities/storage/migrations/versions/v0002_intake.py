"""The inbox in lanes, dead letters, and who leads"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("inbox", sa.Column("lane", sa.Text(), server_default="", nullable=False))
    op.add_column("inbox", sa.Column("due_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(op.f("ix_inbox_lane_id"), "inbox", ["lane", "id"], unique=False)
    op.create_table(
        "dead_letters",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("headers", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("whole", sa.Boolean(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letters")),
        sa.UniqueConstraint("digest", name=op.f("uq_dead_letters_digest")),
    )
    op.create_index(op.f("ix_dead_letters_taken_at_at"), "dead_letters", ["taken_at", "at"], unique=False)
    op.create_table(
        "leaders",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leaders")),
    )


def downgrade() -> None:
    op.drop_table("leaders")
    op.drop_index(op.f("ix_dead_letters_taken_at_at"), table_name="dead_letters")
    op.drop_table("dead_letters")
    op.drop_index(op.f("ix_inbox_lane_id"), table_name="inbox")
    op.drop_column("inbox", "due_at")
    op.drop_column("inbox", "lane")
