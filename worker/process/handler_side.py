"""Builds the executor that the settings select, around the loaded handler."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from worker.codec import AnswerEncoder
from worker.executors.thread import BatchExecutor, ThreadExecutor
from worker.formats import FORMATS
from worker.handlers.attempt import AttemptRunner
from worker.handlers.batch import BatchRunner
from worker.handlers.hooks import set_up, tear_down
from worker.handlers.loader import load
from worker.handlers.stored_attempt import StoredAttemptRunner
from worker.isolation.config import ChildConfig
from worker.isolation.executor import ProcessExecutor
from worker.isolation.mailbox import ChildMailbox
from worker.isolation.policy import Policy
from worker.process.crash_reports import StartRecorder
from worker.process.dead_letters import oversized, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Failure, Outcome
    from worker.executors.mailbox import Mailbox
    from worker.executors.port import Executor
    from worker.process.config import ProcessConfig
    from worker.process.status_block import StatusBlock
    from worker.stores.port import OffsetStore


def encoder_of(config: ProcessConfig) -> AnswerEncoder:
    """Return an encoder of answers. Every thread that encodes needs a separate one."""
    return AnswerEncoder(config.name, FORMATS[config.message_format].encode_response)


def executor_of(config: ProcessConfig, mailbox: Mailbox, store: OffsetStore | None, status: StatusBlock) -> Executor:
    """Return the executor with the handler loaded. Raise WorkerError when the handler cannot be loaded."""
    if isinstance(mailbox, ChildMailbox):
        return _isolated(config, mailbox)
    kwargs, most = config.handler_kwargs, config.max_attempts
    status.publish({"loading": True})  # explains an end of the process before the first turn of its main loop
    handler = load(config.handler, kwargs)
    set_up(config.handler)
    on_stop = functools.partial(tear_down, config.handler)
    timeout, decode = config.task_timeout, FORMATS[config.message_format].decode_request
    if config.batch_size > 1:
        return BatchExecutor(lambda post: BatchRunner(handler, kwargs, most, post, timeout, decode), mailbox, on_stop)
    runner = AttemptRunner(handler, kwargs, most, timeout, decode)
    if store is not None:
        runner = StoredAttemptRunner(handler, kwargs, most, store, _size_check(config), timeout, decode)
    runner.starts = StartRecorder(status, config.request_topics)
    return ThreadExecutor(runner, mailbox, on_stop)


def _isolated(config: ProcessConfig, mailbox: ChildMailbox) -> Executor:
    """Return an executor that runs the handler in a child process. This process does not import the handler."""
    child = ChildConfig(
        config.handler,
        config.handler_kwargs,
        config.max_attempts,
        list(config.request_topics),
        config.log_level,
        config.log_format,
        config.name,
        config.message_format,
    )
    policy = Policy(
        timeout=config.task_timeout,
        grace=config.cancel_grace,
        memory=config.task_memory,
        child_max_tasks=config.child_max_tasks,
        child_max_memory=config.child_max_memory,
        extra_slots=config.extra_slots,
        long_after=config.long_after,
    )
    return ProcessExecutor(child, policy, mailbox)


def _size_check(config: ProcessConfig) -> Callable[[Outcome], Failure | None]:
    """Return a check of the size of an answer. It runs on the executor's thread, so it needs a second encoder."""
    encoder = encoder_of(config)
    topic, limit = config.ack_topic, config.max_answer_bytes

    def too_large(outcome: Outcome) -> Failure | None:
        value = encoder.ok(outcome)
        return oversized(len(value), topic, limit) if size_of(outcome.task.record.key, value) > limit else None

    return too_large
