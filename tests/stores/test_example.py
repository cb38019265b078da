"""The handler of examples/store.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import worker
from examples.store import CREATE, WORDS, tally
from tests.stores.support import TOPIC, answer
from worker.codec import Request
from worker.stores.port import StaleOffsetError

if TYPE_CHECKING:
    from tests.stores.conftest import Make


def test_each_request_is_counted_once(make: Make) -> None:
    """A failed attempt does not count, nor does the late commit of a second process."""
    store, request = make(), Request(payload="to be or not to be")
    with store.take() as connection:
        connection.execute(CREATE)
        connection.commit()
    failed = store.begin(TOPIC, 0)
    tally(request, SimpleNamespace(transaction=failed.handle))
    failed.rollback()
    late, good = store.begin(TOPIC, 0), store.begin(TOPIC, 0)
    result = tally(request, SimpleNamespace(transaction=good.handle))
    good.commit(answer(0, result.encode()))
    tally(request, SimpleNamespace(transaction=late.handle))
    with pytest.raises(StaleOffsetError):
        late.commit(answer(0))

    with store.take() as connection:
        found = {row.word: row.times for row in connection.execute(sa.select(WORDS))}
    assert found == {"to": 2, "be": 2, "or": 1, "not": 1}
    assert next(store.answers(TOPIC, 0, 1)).result == b"6 words"


def test_a_request_without_words_is_rejected() -> None:
    with pytest.raises(worker.Reject):
        tally(Request(payload=" "), None)
