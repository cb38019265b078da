"""The composition root of a worker process: which parts it is made of."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from worker.codec import AnswerEncoder
from worker.handlers.batch import BatchRunner
from worker.handlers.loader import load
from worker.handlers.runner import Runner
from worker.handlers.storing import StoringRunner
from worker.kafka.consumer import ConfluentConsumer
from worker.kafka.producer import ConfluentProducer
from worker.kafka.transactional import ConfluentTransactor
from worker.metrics import Metrics
from worker.process.courier import Courier
from worker.process.letters import oversized, size_of
from worker.process.mailbox import Mailbox
from worker.process.poller import Poller
from worker.process.service import BatchService, Service
from worker.process.tasklog import TaskLog
from worker.stores.loading import load as load_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Failure, Outcome
    from worker.handlers.loader import Handler
    from worker.kafka.ports import Producer
    from worker.process.cell import Cell
    from worker.process.config import ProcessConfig
    from worker.stores.port import OffsetStore


def build(config: ProcessConfig, cell: Cell) -> Poller:
    """Load the handler, then make the Kafka clients. Raises WorkerError when the process cannot start."""
    handler = load(config.handler, config.handler_kwargs)
    mailbox = Mailbox()
    store = load_store(config.offset_store, config.group) if config.offset_store else None
    runner, service = _service(config, handler, mailbox, store)
    consumer = ConfluentConsumer(config.consumer_properties)
    return Poller(
        config,
        consumer=consumer,
        writer=_writer(config, mailbox),
        encoder=AnswerEncoder(config.name),
        runner=runner,
        service=service,
        mailbox=mailbox,
        cell=cell,
        metrics=Metrics(),
        tasklog=TaskLog(),
        hold=lambda: config.revoke_hold[consumer.protocol],
        store=store,
    )


def _service(
    config: ProcessConfig, handler: Handler, mailbox: Mailbox, store: OffsetStore | None
) -> tuple[Runner | BatchRunner, Service]:
    kwargs, most = config.handler_kwargs, config.max_attempts
    if config.batch_size > 1:
        batches = BatchService(lambda post: BatchRunner(handler, kwargs, most, post), mailbox)
        return batches.runner, batches
    if store is None:
        runner = Runner(handler, kwargs, most)
    else:
        runner = StoringRunner(handler, kwargs, most, store, _size_check(config))
    return runner, Service(runner, mailbox)


def _size_check(config: ProcessConfig) -> Callable[[Outcome], Failure | None]:
    """What says whether an answer is too large for its topic. Service thread, hence an encoder of its own."""
    encoder, topic, limit = AnswerEncoder(config.name), config.ack_topic, config.max_answer_bytes

    def too_large(outcome: Outcome) -> Failure | None:
        value = encoder.ok(outcome)
        return oversized(len(value), topic, limit) if size_of(outcome.task.record.key, value) > limit else None

    return too_large


def _writer(config: ProcessConfig, mailbox: Mailbox) -> Producer | Courier:
    if config.guarantee == "exactly-once":
        make = functools.partial(ConfluentTransactor, config.producer_properties, checker=config.checker_properties)
        return Courier(make, mailbox.ring)
    return ConfluentProducer(config.producer_properties)
