"""Migrations, transactions and what happens when the database can't be reached."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext

from activities.ports import Unreadable
from activities.storage import machine_tables, order_tables  # noqa: F401  (they enter the metadata)
from activities.storage.database import Database, SchemaError
from activities.storage.ledger import Ledger
from activities.storage.migrations.versions import v0006_left_out, v0007_thaw_votes, v0008_weighed_pools
from activities.storage.order_tables import campaigns
from activities.storage.tables import breakers, fences, metadata, notes
from tests.unit.fleet.fleet import T0


def test_the_migrations_make_the_tables_that_the_code_knows(db: Database) -> None:
    with db.transaction() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_the_version_before_reads_the_votes_to_close_a_breaker(empty_url: str) -> None:
    database = Database(empty_url)
    database.upgrade()
    row = {"cluster": "c", "cause": "critical", "opened_at": T0, "reason": "ten"}
    with database.transaction() as connection:
        votes = [{"by": "ada", "at": T0.isoformat()}, "grace"]
        connection.execute(sa.insert(breakers).values(**row, votes=votes))
        with Operations.context(MigrationContext.configure(connection)):
            v0006_left_out.downgrade()
        assert connection.execute(sa.select(breakers.c.votes)).scalar_one() == ["ada", "grace"]
        columns = {column["name"] for column in sa.inspect(connection).get_columns("campaign_nodes")}
        assert "by" not in columns
    database.close()


def test_the_version_before_reads_the_votes_to_thaw(empty_url: str) -> None:
    database = Database(empty_url)
    database.upgrade()
    row = {"scope": "all", "by": "kim", "reason": "smoke", "marks": False, "at": T0}
    with database.transaction() as connection:
        word = {"by": "ada", "at": T0.isoformat(), "why": "gone"}
        connection.execute(sa.insert(fences).values(**row, thaw_votes=[word, word, "grace"]))
        with Operations.context(MigrationContext.configure(connection)):
            v0007_thaw_votes.downgrade()
        assert connection.execute(sa.select(fences.c.thaw_votes)).scalar_one() == ["ada", "grace"]
    database.close()


def test_what_people_have_weighed_is_read_by_the_version_before_and_after(empty_url: str) -> None:
    database = Database(empty_url)
    database.upgrade()
    row = {
        "id": "drv", "state": "running", "passed": 0, "why": "", "at_once": 1, "approval": "a", "plan_hash": "p",
        "requested_by": "ada", "at": T0, "updated_at": T0, "plan": {},
    }  # fmt: skip
    known = {"acted": 3, "failed": 2, "out": {"c/train": 18.75}}
    with database.transaction() as connection:
        connection.execute(sa.insert(campaigns).values(**row, known=known))
        connection.execute(sa.insert(campaigns).values(**row | {"id": "other"}))
        with Operations.context(MigrationContext.configure(connection)):
            for step, left in (
                (v0008_weighed_pools.downgrade, {"acted": 3, "failed": 2, "out_percent": 0.0}),
                (v0008_weighed_pools.upgrade, {"acted": 3, "failed": 2, "out": {}}),
            ):
                step()
                rows = connection.execute(sa.select(campaigns.c.id, campaigns.c.known))
                assert {row.id: row.known for row in rows} == {"drv": left, "other": None}
    database.close()


def test_check_says_what_to_run(empty_url: str) -> None:
    database = Database(empty_url)
    with pytest.raises(SchemaError, match="run `medevac setup`"):
        database.check()
    with pytest.raises(Unreadable, match="run `medevac setup`"):
        Ledger(database).incidents()
    database.upgrade()
    database.check()
    database.close()


def test_check_refuses_a_schema_of_another_version(db: Database) -> None:
    with db.transaction() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaError, match="9999"):
        db.check()


def test_two_processes_may_upgrade_at_once(empty_url: str) -> None:
    databases = [Database(empty_url) for _ in range(3)]
    errors: list[BaseException] = []

    def upgrade(database: Database) -> None:
        try:
            database.upgrade()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=upgrade, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    databases[0].check()
    for database in databases:
        database.close()


def test_a_failed_transaction_leaves_nothing(db: Database) -> None:
    def half() -> None:
        with db.transaction() as connection:
            connection.execute(sa.insert(notes).values(cluster="c", node="n", at=T0, text="half", digest="d"))
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        half()
    assert Ledger(db).notes("c", "n", T0) == []


def test_a_locked_database_is_unreadable_within_the_time_out(db: Database, url: str) -> None:
    impatient = Database(url, timeout_s=4.0)
    ledger = Ledger(impatient)
    with db.transaction() as connection:
        # On SQLite the transaction alone holds the file; PostgreSQL locks what is named.
        if db.dialect == "postgresql":
            connection.execute(sa.text("LOCK TABLE notes IN ACCESS EXCLUSIVE MODE"))
        with pytest.raises(Unreadable) as raised:
            ledger.note("c", "n", "text", T0)
    assert "\n" not in str(raised.value)
    ledger.note("c", "n", "text", T0)
    impatient.close()


def test_a_writer_never_keeps_a_reader_waiting(db: Database) -> None:
    with db.transaction() as connection:
        connection.execute(sa.insert(notes).values(cluster="c", node="n", at=T0, text="x", digest="d"))
        assert Ledger(db).notes("c", "n", T0) == []
    assert len(Ledger(db).notes("c", "n", T0)) == 1


@pytest.mark.postgres
def test_neither_errors_nor_names_hold_the_password(postgres_url: str) -> None:
    for wrong in (
        postgres_url.rsplit("/", 1)[0] + "/nowhere",
        postgres_url.replace("s3cret%2Fpw", "wr0ng%2Fpw"),
        "postgresql://medevac:s3cret%2Fpw@127.0.0.1:1/postgres",
    ):
        database = Database(wrong, timeout_s=1)
        with pytest.raises(Unreadable) as raised:
            Ledger(database).incidents()
        said = f"{raised.value} {raised.value.__cause__} {raised.value.__context__!r} {database.name}"
        assert "\n" not in str(raised.value)
        assert not any(secret in said for secret in ("s3cret", "wr0ng"))
        assert "medevac" in database.name
        database.close()


@pytest.mark.postgres
def test_a_statement_that_takes_too_long_is_given_up(postgres_url: str) -> None:
    database = Database(postgres_url, timeout_s=4.0)
    with pytest.raises(Unreadable, match="statement timeout"), database.reading() as connection:
        connection.execute(sa.text("SELECT pg_sleep(60)"))
    with database.reading() as connection:
        assert connection.execute(sa.text("SELECT 1")).scalar() == 1
    database.close()


@pytest.mark.postgres
def test_a_connection_that_the_server_dropped_is_replaced(postgres_url: str) -> None:
    database, other = Database(postgres_url), Database(postgres_url)
    with database.reading() as connection:
        pid = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar()
    with other.reading() as connection:
        connection.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
    with database.reading() as connection:
        assert connection.execute(sa.text("SELECT 1")).scalar() == 1
    database.close()
    other.close()


def test_an_unreachable_folder_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreadable, match="unable to open database file"):
        Ledger(Database(f"sqlite:///{tmp_path}/file/ledger.sqlite")).incidents()
    with pytest.raises(Unreadable):
        Database(f"sqlite:///{tmp_path}/file/ledger.sqlite").upgrade()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://h/d"])
def test_databases_that_cannot_hold_a_ledger_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"sqlite|postgresql"):
        Database(url)


def test_looking_for_a_ledger_makes_none(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    with pytest.raises(SchemaError, match="no ledger yet; run `medevac setup`"):
        Database(f"sqlite:///{file}").check()
    assert not file.exists()
