"""The location of the included store's database: ``WORKER_STORE_URL``."""

from __future__ import annotations

import os
from pathlib import Path

import sqlalchemy as sa

from worker.stores.port import StoreError

URL = "WORKER_STORE_URL"
_EXAMPLE = "postgresql://user:password@host/database"
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg", "sqlite": "sqlite+pysqlite"}


def from_environment() -> str:
    """Return ``WORKER_STORE_URL``, or the content of ``WORKER_STORE_URL_FILE``. Raise StoreError without either."""
    text, path = os.environ.get(URL, "").strip(), os.environ.get(f"{URL}_FILE", "").strip()
    if text and path:
        raise StoreError(f"{URL} and {URL}_FILE are both set: leave one of them out")
    if path:
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise StoreError(f"{URL}_FILE={path!r} cannot be read: {reason}") from None
    if not text:
        raise StoreError(
            f"{URL} must be set, such as postgresql://user:password@host/database or sqlite:////var/lib/w.db"
        )
    return text


def parse(text: str) -> sa.URL:
    """Return the URL with the driver to use. Raise StoreError without the text, which contains a password."""
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # ValueError if the port is not a number
        raise StoreError(f"{URL} is not a database URL, such as {_EXAMPLE}") from None
    backend = url.drivername.partition("+")[0]
    driver = _DRIVERS.get(backend)
    if driver is None or url.drivername not in (backend, driver):
        raise StoreError(
            f"{URL} begins with {url.drivername}://, but this store speaks postgresql:// and sqlite:// only"
        )
    if backend == "sqlite" and url.database in (None, "", ":memory:"):
        raise StoreError(f"{URL} names no file: add a path, because a database in memory is lost when the process ends")
    return url.set(drivername=driver)
