"""Which share of which pool is out of service, as a campaign last saw it; and which check of a node was begun last"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("campaigns", sa.Column("out", JSON, nullable=True))
    op.add_column("campaign_nodes", sa.Column("run", sa.Integer(), nullable=False, server_default="0"))
    _known("out_percent", {"out": {}})


def downgrade() -> None:
    op.drop_column("campaign_nodes", "run")
    op.drop_column("campaigns", "out")
    _known("out", {"out_percent": 0.0})


def _known(leaves: str, comes: dict[str, Any]) -> None:
    """What people had weighed of nodes out of service was never kept, so none of it is lost."""
    campaigns = sa.table("campaigns", sa.column("id", sa.Text()), sa.column("known", JSON))
    connection = op.get_bind()
    for row in connection.execute(sa.select(campaigns).where(campaigns.c.known.is_not(None))).all():
        known = {name: value for name, value in row.known.items() if name != leaves} | comes
        connection.execute(sa.update(campaigns).where(campaigns.c.id == row.id).values(known=known))
