"""Alembic's entry: runs in the connection and transaction that `Database.upgrade` hands over."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from activities.storage import machine_tables, order_tables  # noqa: F401  (they enter the metadata)
from activities.storage.columns import Json, Moment, Words
from activities.storage.tables import metadata

PLAIN = {
    Words: "sa.Text()",
    Moment: "sa.DateTime(timezone=True)",
    Json: 'sa.JSON().with_variant(JSONB(), "postgresql")',
}
"""Migrations spell the plain types: they must mean the same when our own types have changed."""


def render_item(kind: str, item: Any, _: AutogenContext) -> str | Literal[False]:
    return PLAIN.get(type(item), False) if kind == "type" else False


connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("migrations run through `medevac setup` (Database.upgrade), which knows the database")

context.configure(
    connection=connection,
    target_metadata=metadata,
    compare_type=True,
    render_item=render_item,
)
context.run_migrations()
