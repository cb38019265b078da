"""A handler whose result is a row of the user's own, written in the transaction that moves the offset.

::

    pip install 'kafka-task-worker[store]'
    export WORKER_OFFSET_STORE=worker.stores.sql:store WORKER_STORE_URL=postgresql://user:password@host/database
    export WORKER_HANDLER=examples.store:tally
    worker run

However often a request is tried, whatever is killed meanwhile: each is counted once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

import worker

if TYPE_CHECKING:
    from worker.codec import Request

WORDS = sa.Table(
    "words",
    sa.MetaData(),
    sa.Column("word", sa.Text, primary_key=True),
    sa.Column("times", sa.BigInteger, nullable=False),
)
CREATE = sa.schema.CreateTable(WORDS, if_not_exists=True)
COUNT = sa.text("INSERT INTO words VALUES (:word, 1) ON CONFLICT (word) DO UPDATE SET times = words.times + 1")


def tally(request: Request, context: Any) -> str:
    """Count the words of the payload. The ``words`` table must already exist, see ``CREATE``."""
    words = request.payload.lower().split()  # the long work comes first ...
    if not words:
        raise worker.Reject("no words")
    transaction = context.transaction  # ... and the database last, so that locks are short
    for word in sorted(words):  # in a fixed order, so that two processes that lock the same rows cannot deadlock
        transaction.execute(COUNT, {"word": word})
    return f"{len(words)} words"
