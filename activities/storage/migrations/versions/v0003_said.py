"""What was said last, whoever heard it; and turns within a lane of the inbox"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "said",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_said")),
    )
    op.create_index(op.f("ix_said_at"), "said", ["at"], unique=False)
    op.add_column("inbox", sa.Column("family", sa.Text(), server_default="", nullable=False))
    op.add_column("inbox", sa.Column("turn", sa.Float(), server_default="0", nullable=False))
    op.create_index(op.f("ix_inbox_lane_turn_id"), "inbox", ["lane", "turn", "id"], unique=False)
    op.create_index(op.f("ix_inbox_family"), "inbox", ["family"], unique=False)
    op.drop_index(op.f("ix_inbox_lane_id"), table_name="inbox")


def downgrade() -> None:
    op.create_index(op.f("ix_inbox_lane_id"), "inbox", ["lane", "id"], unique=False)
    op.drop_index(op.f("ix_inbox_family"), table_name="inbox")
    op.drop_index(op.f("ix_inbox_lane_turn_id"), table_name="inbox")
    op.drop_column("inbox", "turn")
    op.drop_column("inbox", "family")
    op.drop_index(op.f("ix_said_at"), table_name="said")
    op.drop_table("said")
