"""By what way freezes and silences were made, and silences ended"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table, column in (("fences", "via"), ("silences", "via"), ("silences", "ended_via")):
        op.add_column(table, sa.Column(column, sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    for table, column in (("silences", "ended_via"), ("silences", "via"), ("fences", "via")):
        op.drop_column(table, column)
