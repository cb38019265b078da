"""The behaviour of transactors that the worker relies on when it answers and commits in one transaction."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

import confluent_kafka as ck
import pytest

from tests.contract.transactions import MAX_BYTES, FakeScene, RealScene, Scene, freeze
from tests.kafka_broker import running_broker
from worker.errors import ClientFatalError
from worker.kafka import transactional
from worker.kafka.ports import Ended, Position, Transaction
from worker.kafka.transaction_properties import transactional as transactional_properties
from worker.process.transaction_thread import TransactionThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka_broker import Broker
    from worker.kafka.ports import Transactor
    from worker.kafka.transactional import ConfluentTransactor


REAL = [pytest.param(protocol, marks=pytest.mark.kafka) for protocol in ("consumer", "classic")]


@pytest.fixture(params=["fake", *REAL])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    fake = request.param == "fake"
    one: Scene = FakeScene() if fake else RealScene(request.getfixturevalue("broker"), request.param)
    yield one
    one.close()


@pytest.fixture(scope="module")
def frail() -> Iterator[Broker]:
    """Yield a broker that tests may stop, and that looks for timed-out transactions every 1.5 s.

    The interval is not shorter: a broker that looks for them while it starts forgets the markers of those that it
    aborts (0060).
    """
    with running_broker("transaction.abort.timed.out.transaction.cleanup.interval.ms=1500") as broker:
        yield broker


@pytest.fixture
def shaky(frail: Broker) -> Iterator[RealScene]:
    """Yield a scene whose transactions time out after two seconds."""
    one = RealScene(frail, timeout=2.0)
    yield one
    one.close()


def commit(transactor: Transactor | Careful, transaction: Transaction, attempts: int = 3) -> Ended:
    """Commit as the worker does: try a transaction again that has certainly not happened."""
    ended = transactor.commit(transaction)
    while not ended.committed and attempts > 1:
        attempts -= 1
        ended = transactor.commit(transaction)
    return ended


# ---------------------------------------------------------------- while the broker is reachable


def test_answers_and_positions_become_visible_together(scene: Scene) -> None:
    transactor = scene.transactor()
    assert transactor.commit(scene.transaction([b"a", b"b"], 2, "notes é")) == Ended(committed=True)
    assert sorted(scene.answers(), key=str) == [b"a", b"b"]
    assert scene.position() == Position(2, "notes é")
    assert transactor.commit(scene.transaction([b"c"], 3, "")) == Ended(committed=True)
    assert len(scene.answers()) == 3
    assert scene.position() == Position(3, "")


def test_positions_alone_can_be_committed(scene: Scene) -> None:
    assert scene.transactor().commit(scene.transaction([], 5, "only")) == Ended(committed=True)
    assert scene.position() == Position(5, "only")
    assert scene.answers() == []


def test_a_former_member_writes_nothing_and_a_current_member_can_commit(scene: Scene) -> None:
    transactor = scene.transactor()
    ended = transactor.commit(scene.transaction([b"x"], 1, "stale", member=scene.stale_member()))
    assert not ended.committed
    assert ended.failure is not None
    assert ended.failure.code in {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}
    assert scene.answers() == []
    assert scene.position() is None
    assert commit(transactor, scene.transaction([b"x"], 1, "fresh")).committed
    assert scene.answers() == [b"x"]


@pytest.mark.parametrize("size", [MAX_BYTES + 1_000, 80_000_000], ids=["for-the-topic", "for-the-client"])
def test_an_answer_that_is_too_large_fails_its_whole_transaction(scene: Scene, size: int) -> None:
    """It does not matter whether the client or the broker notices, or where the answer is among the others."""
    transactor = scene.transactor()
    ended = transactor.commit(scene.transaction([b"small", b"x" * size, b"small"], 1, "large"))
    assert not ended.committed
    assert ended.failure is not None
    assert ended.failure.code == "MSG_SIZE_TOO_LARGE"
    assert (scene.answers(), scene.position()) == ([], None)
    assert commit(transactor, scene.transaction([b"smaller"], 1, "fits")).committed
    assert scene.answers() == [b"smaller"]


def test_a_missing_topic_is_a_failure_and_nothing_is_written(scene: Scene) -> None:
    good = scene.transaction([b"x"], 1, "n")
    transactor = scene.transactor()
    lost = good._replace(messages=[*good.messages, good.messages[0]._replace(topic="there-is-no-such-topic")])
    ended = transactor.commit(lost)
    assert not ended.committed
    assert ended.failure is not None
    assert ended.failure.code.lstrip("_") in {"UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"}
    assert commit(transactor, good).committed
    assert scene.answers() == [b"x"]


def test_a_successor_with_the_same_transactional_id_takes_over(scene: Scene) -> None:
    assert scene.transactor().commit(scene.transaction([b"a"], 1, "1")).committed
    assert scene.transactor().commit(scene.transaction([b"b"], 2, "2")).committed
    assert len(scene.answers()) == 2


@pytest.mark.kafka
def test_a_successor_aborts_the_open_transaction_of_its_predecessor(frail: Broker) -> None:
    """This happens after a crash. The successor does not wait until the transaction times out."""
    scene = RealScene(frail, timeout=600.0)
    crashed = ck.Producer(transactional_properties(scene.link, "contract", scene.name, MAX_BYTES))
    crashed.init_transactions(10)
    crashed.begin_transaction()
    crashed.produce(scene.topic, b"lost")
    crashed.flush(10)
    assert scene.is_open()
    assert commit(scene.transactor(), scene.transaction([b"a"], 1, "1")).committed
    scene.until_ended()
    assert scene.answers() == [b"a"]
    scene.close()


# ---------------------------------------------------------------- while the broker is unreachable


class Careful:
    """A transactor on its own thread, as in the worker: a call of the client may never return after an outage."""

    def __init__(self, scene: RealScene) -> None:
        self._transaction_thread = TransactionThread(scene.transactor, lambda: None)
        self.transactor = cast("ConfluentTransactor", self._transaction_thread._worker.transactor)

    def commit(self, transaction: Transaction) -> Ended:
        self._transaction_thread.send(transaction)
        while (ended := self._transaction_thread.ended(0.5)) is None:
            pass
        return ended


def interrupted(scene: RealScene, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> Ended:
    """Commit one answer, and call ``meanwhile`` when the transaction is filled but not ended."""
    careful = Careful(scene)
    assert careful.commit(scene.transaction([b"warm"], 1, "0")).committed
    fill = careful.transactor._fill

    def slow_fill(client: ck.Producer, transaction: Transaction) -> ck.KafkaError | None:
        failed = fill(client, transaction)
        assert failed is None
        client.flush(5)
        meanwhile()
        return failed

    with monkeypatch.context() as patch:
        patch.setattr(careful.transactor, "_fill", slow_fill)
        ended = careful.commit(scene.transaction([b"x"], 2, "1"))
    check(scene, ended)
    if not ended.committed:
        assert commit(careful, scene.transaction([b"x"], 2, "2")).committed
    assert commit(careful, scene.transaction([b"y"], 3, "3")).committed
    assert sorted(scene.answers(), key=str) == [b"warm", b"x", b"y"]
    return ended


class Lame:
    """A client that never finds its coordinator again: every attempt to end a transaction times out."""

    def __init__(self, client: ck.Producer) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def commit_transaction(self, _timeout: float) -> None:
        raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT, "nobody there", retriable=True))

    abort_transaction = commit_transaction


def test_a_client_that_cannot_end_its_transaction_is_replaced(
    shaky: RealScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced when the transaction times out, and not kept until the process ends."""
    monkeypatch.setattr(transactional, "GIVE_UP_SECONDS", 1.0)
    transactor = shaky.transactor()
    assert transactor.commit(shaky.transaction([b"warm"], 1, "0")).committed
    transactor._client = cast("ck.Producer", Lame(cast("ck.Producer", transactor._client)))
    ended = transactor.commit(shaky.transaction([b"x"], 2, "1"))
    assert not ended.committed
    check(shaky, ended)
    assert transactor.commit(shaky.transaction([b"x"], 2, "2")).committed
    assert sorted(shaky.answers(), key=str) == [b"warm", b"x"]


def check(scene: RealScene, ended: Ended) -> None:
    """Check that the reported outcome is the real one."""
    assert scene.position() == (Position(2, "1") if ended.committed else Position(1, "0"))
    assert scene.answers().count(b"x") == ended.committed


def test_a_transaction_that_the_coordinator_gave_up_has_not_happened(
    shaky: RealScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens after the process was stopped for a while. The client then only reports that it was fenced."""
    ended = interrupted(shaky, monkeypatch, shaky.until_given_up)
    assert not ended.committed
    assert ended.failure is not None
    assert ended.failure.code == "_FENCED"


@pytest.mark.timeout(150)  # a call that hangs is given 15 seconds
@pytest.mark.parametrize("seconds", [1.0, 4.5])
def test_a_frozen_broker_loses_and_duplicates_no_answer(
    shaky: RealScene, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """The broker comes back before or after the transaction times out."""
    interrupted(shaky, monkeypatch, lambda: freeze(shaky.broker, seconds))


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restarted_broker_loses_and_duplicates_no_answer(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The broker looks for timed-out transactions at Kafka's default interval: see 0060 for the reason."""
    with running_broker() as broker:
        scene = RealScene(broker, timeout=2.0)

        def restart() -> None:
            broker.script(how)
            threading.Timer(2.5, broker.script, ["up"]).start()

        interrupted(scene, monkeypatch, restart)
        scene.close()


def test_a_transactor_waits_for_the_broker_and_is_closed_in_time(shaky: RealScene) -> None:
    """One transactor is before its first transaction, one is in the middle of a transaction, and one is idle."""
    given = shaky.transaction([b"x"], 1, "1")
    fresh, used, idle = shaky.transactor(), shaky.transactor("second"), shaky.transactor("third")
    for transactor in (used, idle):
        assert commit(transactor, shaky.transaction([b"warm"], 1, "0")).committed
    raised: list[ClientFatalError] = []
    thaw = freeze(shaky.broker, 2.0)
    try:
        threads = [threading.Thread(target=until_closed, args=(one, given, raised)) for one in (fresh, used)]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        started = time.monotonic()
        for transactor in (fresh, used, idle):
            transactor.close()
        assert time.monotonic() - started < 0.5
        assert raised == []
        for thread in threads:
            thread.join(10.0)
            assert not thread.is_alive()
    finally:
        thaw.join()
    assert len(raised) == 2
    assert b"x" not in shaky.answers()


def until_closed(transactor: Transactor, transaction: Transaction, raised: list[ClientFatalError]) -> None:
    try:
        transactor.commit(transaction)
    except ClientFatalError as error:
        raised.append(error)


# ---------------------------------------------------------------- two transactors with the same transactional id


def test_one_of_two_transactors_with_one_id_gives_up_without_a_duplicate(shaky: RealScene) -> None:
    """Otherwise they would fence each other without end."""
    pair, done, gave_up = [shaky.transactor(), shaky.transactor()], 0, False
    while not gave_up:
        assert done < 10
        for transactor in pair:
            try:
                done += transactor.commit(shaky.transaction([b"%d" % done], done + 1, f"{done}")).committed
            except ClientFatalError:
                gave_up = True
    answers = shaky.answers()
    assert len(answers) == len(set(answers)) == done
    assert shaky.position() == Position(done, f"{done - 1}")


@pytest.mark.parametrize("answers", [[b"x"], []])
def test_a_position_of_another_process_is_not_taken_for_our_commit(shaky: RealScene, answers: list[bytes]) -> None:
    """Our transaction has ended, and the new owner of the partition has committed a higher position.

    Without answers it does not matter how our transaction ended.
    """
    transactor = shaky.transactor()
    transaction = shaky.transaction(answers, 2, "ours")
    fill = transactor._fill

    def slow_fill(client: ck.Producer, given: Transaction) -> ck.KafkaError | None:
        failed = fill(client, given)
        client.flush(5)
        if answers:
            shaky.until_given_up()
        else:
            shaky.transactor().open()  # ends our transaction
        assert shaky.transactor("other").commit(shaky.transaction([b"z"], 7, "theirs")).committed
        return failed

    transactor._fill = slow_fill  # type: ignore[method-assign, assignment]
    if answers:
        with pytest.raises(ClientFatalError, match="another process has committed"):
            transactor.commit(transaction)
    else:
        assert not transactor.commit(transaction).committed
    assert shaky.answers() == [b"z"]
