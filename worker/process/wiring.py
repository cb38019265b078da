"""The composition root: the only place that builds the objects of a worker process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from worker.process.cancellations import Cancellations
from worker.process.committer import Committer
from worker.process.crash_reports import reports
from worker.process.delivery import DeliveryResponder
from worker.process.dispatcher import Dispatcher
from worker.process.fetcher import Fetcher
from worker.process.group_calls import GroupCalls
from worker.process.handler_side import encoder_of
from worker.process.holder import Holder
from worker.process.leaving import Leaving
from worker.process.long_tasks import LongTasks
from worker.process.loop import MainLoop
from worker.process.rebalance import Rebalance
from worker.process.results import ResultHandler
from worker.process.shared import Shared
from worker.process.snapshot import Snapshots
from worker.process.store_bridge import StoreBridge
from worker.process.transaction_thread import TransactionThread
from worker.process.transactional_commits import TransactionalCommits
from worker.process.transactions import TransactionalResponder
from worker.process.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.executors.mailbox import Mailbox
    from worker.executors.port import Executor
    from worker.kafka.ports import Consumer, GroupClient, Producer, Transactor
    from worker.process.config import ProcessConfig
    from worker.process.loop import Phase
    from worker.process.responder import Responder
    from worker.process.status_block import StatusBlock
    from worker.process.tracing import AttemptSpans
    from worker.state.port import StateTopic
    from worker.stores.port import OffsetStore


@dataclass(kw_only=True)
class Assembly:
    """Build the main loop around these clients and this executor. Tests bring their own.

    Every object is created once, when another object first needs it.
    """

    config: ProcessConfig
    status: StatusBlock
    consumer: Consumer
    make_producer: Callable[[], Producer]
    make_transactor: Callable[[], Transactor]
    make_group_client: Callable[[], GroupClient]
    executor: Executor
    mailbox: Mailbox
    store: OffsetStore | None = None
    states: StateTopic | None = None
    make_thread: Callable[..., TransactionThread] = TransactionThread
    make_calls: Callable[..., GroupCalls] = GroupCalls
    clock: Callable[[], float] = time.monotonic
    token: str = ""
    spans: AttemptSpans | None = None

    def __post_init__(self) -> None:
        self._shared = Shared.of(self.config, self.clock, self.token)

    def main_loop(self) -> MainLoop:
        """Return the main loop with all of its objects."""
        return MainLoop(
            self._shared,
            self.status,
            consumer=self.consumer,
            executor=self.executor,
            mailbox=self.mailbox,
            dispatcher=self._dispatcher,
            results=self._results,
            responder=self._responder,
            committer=self._committer,
            rebalance=self._rebalance,
            fetcher=self._fetcher,
            leaving=self._leaving,
            before_dispatch=self._before_dispatch(),
            before_commit=self._before_commit(),
            after_commit=self._after_commit(),
            snapshots=self._snapshots,
        )

    # -- phases of features that may be off

    def _before_dispatch(self) -> list[Phase]:
        return [] if self.states is None else [self._cancellations.serve]

    def _before_commit(self) -> list[Phase]:
        phases: list[Phase] = []
        if self._bridge is not None:
            phases.append(self._bridge.serve)
        if self.states is not None:
            phases.append(self._long_tasks.serve)
        return phases

    def _after_commit(self) -> list[Phase]:
        holder, fetcher, lifecycle = self._holder, self._fetcher, self._shared.lifecycle

        def serve_holder(now: float) -> None:
            holder.serve(now, waiting=lambda task: fetcher.work_waits_behind(task, now), leaving=lifecycle.leaving)

        watching: list[Phase] = [self._calls.serve, self._watcher.serve]  # other processes may detach tasks
        return [*watching, serve_holder] if holder.enabled else watching

    # -- parts

    @cached_property
    def _committer(self) -> Committer:
        if self._shared.guarantee.transactional:
            return Committer(self._shared, TransactionalCommits(self._transaction_thread, self.consumer))
        return Committer(self._shared, self.consumer)

    @cached_property
    def _transaction_thread(self) -> TransactionThread:
        return self.make_thread(self.make_transactor, self.mailbox.notify)

    @cached_property
    def _long_tasks(self) -> LongTasks:
        return LongTasks(self._shared, self.states, self.executor)

    @cached_property
    def _settled(self) -> Callable[..., None]:
        """Return the callback that settles requests whose answers were delivered."""
        settled = self._committer.settled
        return settled if self.states is None else self._long_tasks.settling(settled)

    @cached_property
    def _bridge(self) -> StoreBridge | None:
        return None if self.store is None else StoreBridge(self.store, self._settled)

    @cached_property
    def _responder(self) -> Responder:
        """Return the responder, which delivers answers one by one or in transactions. Only its client is created."""
        encoder = encoder_of(self.config)
        if self._shared.guarantee.transactional:
            thread, committed = self._transaction_thread, self._long_tasks.settled
            return TransactionalResponder(self._shared, thread, encoder, self.consumer, self._committer, committed)
        settled = self._settled if self._bridge is None else self._bridge.settled
        return DeliveryResponder(self._shared, self.make_producer(), encoder, settled)

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        prepare = None if self.states is None else self._long_tasks.prepare
        return Dispatcher(self._shared, self.executor, self._responder, self._committer, prepare, self._bridge)

    @cached_property
    def _calls(self) -> GroupCalls:
        return self.make_calls(self.make_group_client, self.mailbox.notify)

    @cached_property
    def _holder(self) -> Holder:
        return Holder(self._shared, self.consumer, self.executor, self._calls, self._long_tasks)

    @cached_property
    def _watcher(self) -> Watcher:
        return Watcher(self._shared, self._committer, self._responder, self._holder, self._calls, self._long_tasks)

    @cached_property
    def _results(self) -> ResultHandler:
        return ResultHandler(
            self._shared,
            self.mailbox,
            self._dispatcher,
            self._responder,
            self._holder,
            self._bridge,
            self._long_tasks,
            self.spans,
        )

    @cached_property
    def _cancellations(self) -> Cancellations:
        return Cancellations(self._shared, self._long_tasks, self.executor, self._dispatcher, self._results)

    @cached_property
    def _snapshots(self) -> Snapshots:
        return Snapshots(self._shared, self.status, self.consumer, self.executor, self._responder, self._long_tasks)

    @cached_property
    def _rebalance(self) -> Rebalance:
        return Rebalance(
            self._shared,
            self.consumer,
            self._committer,
            self._responder,
            self._dispatcher,
            self._holder,
            self._bridge,
            self._snapshots,
            self._long_tasks,
            lambda: reports(self.status),
        )

    @cached_property
    def _fetcher(self) -> Fetcher:
        return Fetcher(self._shared, self.consumer, self.executor, self._dispatcher, self._responder, self._committer)

    @cached_property
    def _leaving(self) -> Leaving:
        return Leaving(
            self._shared,
            self.consumer,
            self.executor,
            self._dispatcher,
            self._responder,
            self._committer,
            self._holder,
            self._long_tasks,
            self._bridge,
            self._fetcher,
            self._snapshots,
        )
