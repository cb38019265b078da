"""Classifies database errors: the database is unavailable, or it refuses."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from sqlalchemy import exc

from worker.stores.port import RefusedError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import ExceptionContext

# SQLSTATE classes: connection lost, transaction rolled back in favour of others (deadlock, serialization), connection
# idle for too long, standby, too few resources, lock not available, operator or time-out, system error.
_PASSING_CLASSES = ("08", "40", "53", "57", "58")
_PASSING_STATES = frozenset({"25006", "25P03", "55P03", "55006"})
# SQLite: BUSY, LOCKED, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL. The low byte; the rest is detail.
_PASSING_CODES = frozenset({5, 6, 8, 10, 13, 14, 15})


def one_line(error: BaseException) -> str:
    """Return the driver's message, without SQLAlchemy's copy of the statement and its parameters."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split()) or type(cause).__name__


def passing(error: BaseException) -> bool:
    """Return whether the cause of a driver's error may be temporary."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _PASSING_CODES
    state = getattr(error, "sqlstate", None)
    if state is None:  # it did not come from the server: no connection, or a broken one
        return any(kind.__name__ == "OperationalError" for kind in type(error).__mro__)
    return state.startswith(_PASSING_CLASSES) or state in _PASSING_STATES


def raise_if_passing(context: ExceptionContext) -> None:
    """Handle every error of the driver, called by SQLAlchemy, even for a handler's statements."""
    error: Any = context.original_exception
    if not context.is_pre_ping and (context.is_disconnect or passing(error)):
        raise StoreUnavailableError(f"the offset store's database is not available: {one_line(error)}") from error


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Wrap our statements: permanent errors become RefusedError."""
    try:
        yield
    except exc.TimeoutError as error:
        raise StoreUnavailableError(f"the offset store has no free connection: {one_line(error)}") from error
    except exc.SQLAlchemyError as error:
        raise RefusedError(f"the offset store's database refused: {one_line(error)}") from error
