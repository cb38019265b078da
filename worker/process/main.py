"""The entry point of a worker process."""

from __future__ import annotations

import faulthandler
import functools
import gc
import os
import secrets
import signal
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from worker import logs
from worker.core.detached import TOKEN_LENGTH, client_id_of
from worker.core.guarantee import GUARANTEES
from worker.errors import ExitCode, WorkerError
from worker.executors.mailbox import Mailbox
from worker.isolation.mailbox import ChildMailbox
from worker.kafka.consumer import ConfluentConsumer
from worker.kafka.group_client import ConfluentGroupClient
from worker.kafka.producer import ConfluentProducer
from worker.kafka.transactional import ConfluentTransactor
from worker.linux import renew_death_signal
from worker.process import tracing
from worker.process.handler_side import executor_of
from worker.process.status_block import StatusBlock
from worker.process.wiring import Assembly
from worker.state.client import KafkaStateTopic
from worker.stores.loading import load as load_store
from worker.streams import end_process

if TYPE_CHECKING:
    from worker.process.config import ProcessConfig
    from worker.process.loop import MainLoop
    from worker.process.tracing import AttemptSpans
    from worker.state.port import StateTopic


def run(config: ProcessConfig, buffer: Any) -> NoReturn:
    """Run a worker process until it has to leave; never return. ``buffer`` is the memory of its status block."""
    # Processes that the handler forks end with this one, even outside of its process group.
    os.register_at_fork(after_in_child=renew_death_signal)
    faulthandler.enable()  # on SIGABRT from the supervisor's watchdog, print every thread's stack
    logs.configure(config.log_level, config.log_format, process=config.name)
    code = _work(config, StatusBlock(buffer))
    # Not sys.exit: the executor's thread may still run a task, and the clients it uses must not be freed.
    end_process(code)


def _work(config: ProcessConfig, status: StatusBlock) -> ExitCode:
    log = structlog.get_logger("process")
    spans = tracing.from_environment(config.group)
    loop: MainLoop | None = None
    try:
        loop = _build(config, status, spans)
        _tune_garbage_collection()
        signal.signal(signal.SIGTERM, lambda *_: setattr(loop, "drain_requested", True))
        return loop.run()
    except WorkerError as error:
        return _failed(status, loop, error.exit_code, str(error))
    except Exception as error:
        log.exception("process.failed", code=int(ExitCode.PROCESS_CRASHED))
        return _failed(status, loop, ExitCode.PROCESS_CRASHED, f"{type(error).__name__}: {error}")
    finally:
        if spans is not None:
            spans.close()


def _build(config: ProcessConfig, status: StatusBlock, spans: AttemptSpans | None) -> MainLoop:
    """Load the handler, then create the Kafka clients. Raise WorkerError when the process cannot start."""
    mailbox = ChildMailbox() if config.isolation == "process" else Mailbox()
    store = load_store(config.offset_store, config.group) if config.offset_store else None
    executor = executor_of(config, mailbox, store, status)
    token = secrets.token_hex(TOKEN_LENGTH // 2)
    starts_once = GUARANTEES[config.guarantee].starts_once
    return Assembly(
        config=config,
        status=status,
        consumer=ConfluentConsumer(_consumer_properties(config, token), ordered_commits=starts_once),
        make_producer=lambda: ConfluentProducer(config.producer_properties),
        make_transactor=functools.partial(
            ConfluentTransactor, config.producer_properties, checker=config.checker_properties
        ),
        make_group_client=functools.partial(ConfluentGroupClient, config.checker_properties),
        executor=executor,
        mailbox=mailbox,
        store=store,
        token=token,
        states=_state_topic(config),
        spans=spans,
    ).main_loop()


def _state_topic(config: ProcessConfig) -> StateTopic | None:
    if not config.state_topic:
        return None
    return KafkaStateTopic(
        config.name,
        config.state_address,
        config.state_topic,
        config.state_partitions,
        ConfluentProducer(config.state_properties),
    )


def _consumer_properties(config: ProcessConfig, token: str) -> dict[str, dict[str, Any]]:
    """Return the properties by protocol. With a state topic, the client id shows that detached tasks are supported."""
    if not config.state_topic:
        return config.consumer_properties
    return {
        protocol: {**properties, "client.id": client_id_of(properties["client.id"], token)}
        for protocol, properties in config.consumer_properties.items()
    }


def _tune_garbage_collection() -> None:
    """Exempt everything imported so far from collection, and collect less often in a stream of short tasks."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def _failed(status: StatusBlock, loop: MainLoop | None, code: ExitCode, message: str) -> ExitCode:
    structlog.get_logger("process").error("process.failed", code=int(code), reason=message)
    # The supervisor removes this member from the group. Otherwise its partitions would wait for the session time-out.
    membership = {} if loop is None else loop.membership
    status.publish({"state": "failed", "failure": {"code": int(code), "message": message}, **membership})
    return code
