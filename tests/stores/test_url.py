"""``WORKER_STORE_URL``: every error is one clear line, which never contains the password."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.stores.support import TOPIC
from worker.errors import ExitCode
from worker.stores.port import StoreError, StoreUnavailableError
from worker.stores.sql import store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stores.postgres import Postgres


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKER_STORE_URL", raising=False)
    monkeypatch.delenv("WORKER_STORE_URL_FILE", raising=False)


def complaint(kind: type[StoreError] = StoreError) -> str:
    with pytest.raises(kind) as caught:
        store("group")
    assert type(caught.value) is kind
    text = str(caught.value)
    assert "\n" not in text
    assert "WORKER_STORE_URL" in text
    assert "s3cret" not in text
    return text


def test_the_url_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "must be set, such as postgresql://" in complaint()
    monkeypatch.setenv("WORKER_STORE_URL", " ")
    assert "must be set" in complaint()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense s3cret", "is not a database URL"),
        ("postgresql://user:s3cret@host:port/database", "is not a database URL"),
        ("mysql://user:s3cret@host/database", "begins with mysql://, but"),
        ("postgresql+psycopg2://user:s3cret@host/database", "begins with postgresql+psycopg2://"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ],
)
def test_an_unusable_url_is_refused(monkeypatch: pytest.MonkeyPatch, url: str, said: str) -> None:
    monkeypatch.setenv("WORKER_STORE_URL", url)
    assert said in complaint()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////no/such/folder/store.db", "unable to open database file"),
        ("postgresql://user:s3cret@127.0.0.1:1/database", "Connection refused"),
        ("postgres://user:s3cret@no-such-host.invalid/database", "no-such-host.invalid"),
        ("postgresql://user:s3cret@127.0.0.1/database?no_such_option=1", "no_such_option"),
    ],
)
def test_the_error_of_a_database_that_may_work_later_names_the_cause(
    monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    """The database may start later than the worker, so the worker does not give up. The line says what was tried."""
    monkeypatch.setenv("WORKER_STORE_URL", url)
    with pytest.raises(StoreError) as caught:
        store("group")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "WORKER_STORE_URL=" in str(caught.value)


def test_a_wrong_password_or_database_makes_the_store_unavailable(
    monkeypatch: pytest.MonkeyPatch, postgres: Postgres
) -> None:
    monkeypatch.setenv("WORKER_STORE_URL", postgres.url("postgres", "s3cret"))
    assert "password authentication failed" in complaint(StoreUnavailableError)
    monkeypatch.setenv("WORKER_STORE_URL", postgres.url("absent"))
    assert 'database "absent" does not exist' in complaint(StoreUnavailableError)


def test_a_file_that_is_not_a_database_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("not a database" * 100)
    monkeypatch.setenv("WORKER_STORE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    with pytest.raises(StoreError, match="file is not a database"):
        store("group")


def test_the_url_can_be_read_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This works for every variable, so that passwords need not be in the environment."""
    file = tmp_path / "url"
    file.write_text(f"sqlite:///{tmp_path / 'store.db'}\n")
    monkeypatch.setenv("WORKER_STORE_URL_FILE", str(file))
    opened = store("group")
    assert opened.positions([TOPIC]) == {}
    opened.close()
    monkeypatch.setenv("WORKER_STORE_URL", "sqlite:///other.db")
    assert "both set" in complaint()
    monkeypatch.delenv("WORKER_STORE_URL")
    monkeypatch.setenv("WORKER_STORE_URL_FILE", str(tmp_path / "absent"))
    assert "cannot be read: No such file" in complaint()


def test_the_error_without_the_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_STORE_URL", "postgresql://user:s3cret@127.0.0.1/database")
    monkeypatch.delitem(sys.modules, "worker.stores.sql_limited", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "pip install 'kafka-task-worker[store]'" in complaint()


def test_wrong_settings_and_an_unavailable_store_have_different_exit_codes() -> None:
    """Wrong settings end the replica. An unavailable store makes the supervisor start the process again."""
    assert StoreError.exit_code is ExitCode.SETTINGS_INVALID
    assert StoreUnavailableError.exit_code is ExitCode.STORE_UNREACHABLE
