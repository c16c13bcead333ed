"""Types of columns that mean the same on SQLite and PostgreSQL: times with a zone, text and JSON of any origin."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect


class Moment(sa.TypeDecorator[datetime]):
    """A time with a zone; SQLite forgets zones, so everything goes in and comes out as UTC."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone can't be stored: {value}; pass an aware datetime")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Words(sa.TypeDecorator[str]):
    """Text of any origin. PostgreSQL refuses NUL characters, which a hostile payload may hold."""

    impl = sa.Text()
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value).replace("\x00", "�")


class Json(sa.TypeDecorator[Any]):
    """JSON of any origin, without NUL characters."""

    impl = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return without_nul(value)


def without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "�")
    if isinstance(value, dict):
        return {without_nul(k): without_nul(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_nul(v) for v in value]
    return value
