"""The PostgreSQL of the tests: the server of ``chaos.postgres``, or a skip if it is missing and cannot be installed."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from chaos import postgres
from chaos.postgres import Postgres, PostgresMissingError
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Run a server that answers. Root can install PostgreSQL, so the test fails for root if it is missing."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(postgres.running_postgres(free_port()))
        except PostgresMissingError as error:
            if os.geteuid() == 0:
                pytest.fail(str(error), pytrace=False)
            pytest.skip(str(error))
        yield server


__all__ = ["Postgres", "running_postgres"]
