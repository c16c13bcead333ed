"""Votes to thaw carry their time and reason, which bare names did not"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Votes stay as they are: a bare name is read as a vote as old as its freeze."""


def downgrade() -> None:
    votes = sa.column("thaw_votes", sa.JSON().with_variant(JSONB(), "postgresql"))
    fences = sa.table("fences", sa.column("id", sa.BigInteger()), votes)
    connection = op.get_bind()
    for row in connection.execute(sa.select(fences)).all():
        names = dict.fromkeys(vote if isinstance(vote, str) else vote["by"] for vote in row.thaw_votes)
        connection.execute(sa.update(fences).where(fences.c.id == row.id).values(thaw_votes=list(names)))
