"""A connection to PostgreSQL in which every wait has a limit.

The server's time-outs end slow statements as long as the server works. A frozen server, or one with a frozen disk,
keeps its sockets open and sends nothing. Neither TCP nor those time-outs detect that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Generator


class LimitedConnection(psycopg.Connection[Any]):
    """Closes itself and raises psycopg.OperationalError when the server has not replied for ``limit`` seconds.

    ``limit`` is None while a handler uses the connection: its statements may take as long as its task.
    """

    limit: float | None = None

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Wait like psycopg, which calls this for every exchange with the server, every 0.1 s."""
        return super().wait(gen if self.limit is None else self._limited(gen, self.limit), *args, **kwargs)

    def _limited(self, gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
        end = time.monotonic() + seconds
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() > end:
                    self.close()  # a late reply must not reach the next statement
                    raise psycopg.OperationalError(f"no answer from the server for {seconds:g} s")
                state = gen.send(ready)
        except StopIteration as finished:
            return finished.value
