"""One database: its connections, transactions, time-outs, and migrations.

Everything that can't be reached or locked in time is `Unreadable`, with one line that holds no password.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.pool import ConnectionPoolEntry

from activities.ports import Unreadable

MIGRATIONS = Path(__file__).parent / "migrations"

_writers: dict[str, threading.Lock] = {}
_writers_lock = threading.Lock()


class SchemaError(Exception):
    """The database isn't at this version's schema; the message says what to run."""


class Database:
    """`url` is SQLAlchemy's: `sqlite:////path/ledger.sqlite` or `postgresql://user:password@host/name`.

    `timeout_s` bounds each wait for a connection, a lock and a statement. Opens nothing until it is used.
    """

    def __init__(self, url: str, timeout_s: float = 5.0, pool_size: int = 10) -> None:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        self.timeout_s = timeout_s
        self.dialect = parsed.get_backend_name()
        self._password = parsed.password
        self.name = parsed.set(query={}).render_as_string(hide_password=True)
        if self.dialect == "sqlite":
            self.engine = _sqlite(parsed, timeout_s, pool_size)
        elif self.dialect == "postgresql":
            self.engine = _postgresql(parsed, timeout_s, pool_size)
        else:
            raise ValueError(f"{self.name}: only sqlite and postgresql are supported, not {self.dialect}")
        self._writer = _writer(parsed) if self.dialect == "sqlite" else None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Reads and writes that become true together, or not at all. Raises `Unreadable`."""
        if self._writer is None:
            with self._connected() as connection, connection.begin():
                yield connection
            return
        # SQLite has one writer at a time. Threads of one process queue here, because its own way of waiting is
        # to sleep and look again, which starves some of a few hundred threads; other processes still do that.
        if not self._writer.acquire(timeout=self.timeout_s):
            raise Unreadable(f"{self.name}: no turn to write within {self.timeout_s:g} s; another writer holds it")
        try:
            with self._connected() as connection:
                connection.execution_options(medevac_write=True)
                with connection.begin():
                    yield connection
        finally:
            self._writer.release()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Reads only, of one moment on SQLite. Never waits for a writer. Raises `Unreadable`."""
        with self._connected() as connection, connection.begin():
            yield connection

    def upgrade(self) -> None:
        """Brings the schema to head; two processes at once do it one after the other."""
        try:
            if self.dialect == "sqlite":
                Path(self.engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)
            with self.transaction() as connection:
                if self.dialect == "postgresql":
                    # Another process's migration may take longer than a statement usually may.
                    connection.execute(sa.text("SET LOCAL statement_timeout = '5min'"))
                    connection.execute(sa.text("SET LOCAL lock_timeout = '5min'"))
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(7260512021)"))
                config = _alembic()
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except OSError as error:
            raise Unreadable(self._line(error)) from None

    def check(self) -> None:
        """Raises `SchemaError` if the schema isn't at head, `Unreadable` if it can't be read."""
        head = ScriptDirectory.from_config(_alembic()).get_current_head()
        file = self.engine.url.database
        if self.dialect == "sqlite" and file not in (None, "", ":memory:") and not Path(file).exists():
            # Asking would create it: an empty ledger where somebody only looked.
            raise SchemaError(f"{self.name} has no ledger yet; run `medevac setup`")
        with self.reading() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
        if found == head:
            return
        if found is None:
            raise SchemaError(f"{self.name} has no ledger yet; run `medevac setup`")
        raise SchemaError(
            f"{self.name} is at schema {found}, this version of medevac needs {head}; run `medevac setup` of the "
            "newest version in use"
        )

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            with self.engine.connect() as connection:
                yield connection
        except (sa.exc.IntegrityError, sa.exc.DataError):
            raise  # our own mistake: it would come again
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            # Without `from`: the chain would carry the statement, and so a stranger's payload, into histories.
            raise Unreadable(self._line(error)) from None

    def _line(self, error: Exception) -> str:
        cause = getattr(error, "orig", None) or error
        text = (str(cause).strip().splitlines() or [type(cause).__name__])[0].strip()
        if self._password:
            text = text.replace(str(self._password), "***")
        fix = "; run `medevac setup`" if "no such table" in text or "UndefinedTable" in type(cause).__name__ else ""
        return f"{self.name}: {text}{fix}"


def _sqlite(url: URL, timeout_s: float, pool_size: int) -> sa.Engine:
    if url.database in (None, "", ":memory:"):
        raise ValueError("the ledger must outlive its process: give sqlite a file, e.g. sqlite:////var/lib/x.sqlite")
    engine = sa.create_engine(
        url,
        connect_args={"timeout": timeout_s, "check_same_thread": False},
        pool_size=pool_size,
        max_overflow=-1,
        hide_parameters=True,
    )

    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: ConnectionPoolEntry) -> None:
        # The driver's own transactions begin too late (at the first write) and would lose the row locks' stand-in.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(timeout_s * 1000)}")
        cursor.execute("PRAGMA journal_mode = WAL")
        # FULL, so that an intent outlives a power cut: without it the reboot could be ordered twice.
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("medevac_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgresql(url: URL, timeout_s: float, pool_size: int) -> sa.Engine:
    ms = int(timeout_s * 1000)
    return sa.create_engine(
        url,
        connect_args={
            "connect_timeout": max(2, round(timeout_s)),
            "tcp_user_timeout": ms,
            "application_name": "medevac",
            "options": (
                f"-c statement_timeout={ms} -c lock_timeout={ms} -c idle_in_transaction_session_timeout={ms * 2} "
                "-c timezone=UTC"
            ),
        },
        pool_size=pool_size,
        max_overflow=pool_size * 2,
        pool_timeout=timeout_s,
        pool_pre_ping=True,
        pool_recycle=1_800,
        hide_parameters=True,
    )


def _writer(url: URL) -> threading.Lock:
    path = str(Path(url.database or "").resolve())
    with _writers_lock:
        return _writers.setdefault(path, threading.Lock())


def _alembic() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config
