"""The composition root of a worker process: which parts it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.codec import AnswerEncoder
from worker.handlers.loader import load
from worker.handlers.runner import Runner
from worker.kafka.confluent import ConfluentConsumer, ConfluentProducer
from worker.metrics import Metrics
from worker.process.mailbox import Mailbox
from worker.process.poller import Poller
from worker.process.service import Service
from worker.process.tasklog import TaskLog

if TYPE_CHECKING:
    from worker.process.cell import Cell
    from worker.process.config import ProcessConfig


def build(config: ProcessConfig, cell: Cell) -> Poller:
    """Load the handler, then make the Kafka clients. Raises WorkerError when the process cannot start."""
    runner = Runner(load(config.handler, config.handler_kwargs), config.handler_kwargs)
    mailbox = Mailbox()
    consumer = ConfluentConsumer(config.consumer_properties)
    return Poller(
        config,
        consumer=consumer,
        producer=ConfluentProducer(config.producer_properties),
        encoder=AnswerEncoder(config.name),
        runner=runner,
        service=Service(runner, mailbox),
        mailbox=mailbox,
        cell=cell,
        metrics=Metrics(),
        tasklog=TaskLog(),
        hold=lambda: config.revoke_hold[consumer.protocol],
    )
