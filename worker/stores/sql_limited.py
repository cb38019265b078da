"""A connection to PostgreSQL on which no wait goes on for ever.

The server's own time-outs end the statements of a server that works. One that is frozen, or whose disk is, keeps its
sockets open and says nothing; neither TCP nor those time-outs notice.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Generator


class LimitedConnection(psycopg.Connection[Any]):
    """Closes itself and raises psycopg.OperationalError when the server has not answered for ``limit`` seconds.

    ``limit`` is None while a handler uses the connection: its statements may take as long as its task.
    """

    limit: float | None = None

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """As psycopg's, which drives every exchange with the server through here and looks up every 0.1 s."""
        return super().wait(gen if self.limit is None else self._limited(gen, self.limit), *args, **kwargs)

    def _limited(self, gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
        end = time.monotonic() + seconds
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() > end:
                    self.close()  # what is still to come belongs to nobody
                    raise psycopg.OperationalError(f"no answer from the server for {seconds:g} s")
                state = gen.send(ready)
        except StopIteration as finished:
            return finished.value
