"""Who left a campaign's node out; and votes to close a breaker carry their time, which bare names did not"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Votes stay as they are: a bare name is read as a vote as old as its breaker.
    op.add_column("campaign_nodes", sa.Column("by", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("campaign_nodes", "by")
    votes = sa.column("votes", sa.JSON().with_variant(JSONB(), "postgresql"))
    breakers = sa.table("breakers", sa.column("cluster", sa.Text()), sa.column("cause", sa.Text()), votes)
    connection = op.get_bind()
    for row in connection.execute(sa.select(breakers)).all():
        names = [vote if isinstance(vote, str) else vote["by"] for vote in row.votes]
        own = (breakers.c.cluster == row.cluster) & (breakers.c.cause == row.cause)
        connection.execute(sa.update(breakers).where(own).values(votes=names))
