"""The mutants: the engine's line to break, the invariant that guards it, and the tests and the faults to try."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A mutant. ``line`` occurs once in ``file`` and becomes ``broken``.

    ``invariant`` is the one of the fault suite that the line serves. ``tests`` are arguments for ``pytest``, ``run``
    those for a run of the suite in which the mutant may show.
    """

    name: str
    invariant: str
    file: str
    line: str
    broken: str
    tests: tuple[str, ...]
    run: str


_FAKE = "tests/process_fake/test_{}.py"
_LAWS = "tests/laws/test_{}_laws.py"
_REQUESTS = "--mix requests --minutes 0.5"
_DETACHING = "--guarantee exactly-once --with detaching --mix freeze-process+cut --faults 40 --gap 2 --brokers 3"
_DETACHED = (_FAKE.format("detached"), _FAKE.format("detached_once"), _FAKE.format("detached_records"))

MUTANTS = (
    Mutant(
        "results of ended leases are answered",
        "duplicate",
        "worker/core/claim.py",
        "        self.valid = False\n",
        "        self.valid = True\n",
        (_FAKE.format("rebalances"), _FAKE.format("lost_partitions"), _FAKE.format("transactions")),
        "--seed 22 --guarantee exactly-once --mix freeze-process --faults 10",
    ),
    Mutant(
        "one attempt more than the limit",
        "attempts",
        "worker/core/retry.py",
        "    if attempt >= policy.max_attempts:\n",
        "    if attempt > policy.max_attempts:\n",
        (_FAKE.format("attempts"), _FAKE.format("start_limits")),
        _REQUESTS,
    ),
    Mutant(
        "a crash is not counted as an attempt",
        "attempts",
        "worker/core/start_log.py",
        "        self._charge(offset, self._started_before(offset) + 1)\n",
        "        self._charge(offset, self._started_before(offset))\n",
        (_FAKE.format("start_limits"), _FAKE.format("attempts")),
        _REQUESTS,
    ),
    Mutant(
        "tasks start above the start limit",
        "attempts",
        "worker/core/owned_partition.py",
        "self.queue.take(limit, below, now, held=",
        'self.queue.take(limit, float("inf"), now, held=',
        (_FAKE.format("start_limits"), _FAKE.format("once"), _LAWS.format("partition")),
        "--guarantee at-most-once --mix cut-out+cut --faults 12 --session 3",
    ),
    Mutant(
        "a failed task starts before a commit has recorded it",
        "attempts",
        "worker/core/owned_partition.py",
        "self.queue.take(limit, below, now, held=self.starts.held)",
        "self.queue.take(limit, below, now)",
        ("tests/unit/test_failed_starts.py", _FAKE.format("failed_in_outages")),
        "--ordering unordered --mix requests --minutes 1",
    ),
    Mutant(
        "the start of a failed task stays requested while another one runs alone",
        "attempts",
        "worker/core/assignment.py",
        "                if single and self.waits_for_commit:\n",
        "                if False:\n",
        (_FAKE.format("failed_in_outages"),),
        "--ordering unordered --mix cut-out+kill-process --faults 20 --gap 2",
    ),
    Mutant(
        "at-most-once starts a failed task again",
        "starts",
        "worker/process/results.py",
        "        if isinstance(step, Retry) and not self._guarantee.starts_once:\n",
        "        if isinstance(step, Retry):\n",
        (_FAKE.format("once"),),
        "--guarantee at-most-once --mix requests --minutes 0.5",
    ),
    Mutant(
        "a failed task goes behind its successors",
        "order",
        "worker/core/ordering_group.py",
        "        self.queue.extendleft(self._returned)\n",
        "        self.queue.extend(self._returned)\n",
        (_FAKE.format("orderings"), _FAKE.format("attempts"), _LAWS.format("partition")),
        "--seed 34 --mix requests --minutes 0.5",
    ),
    Mutant(
        "requests overtake a detached task of their partition",
        "handler order",
        "worker/core/queues.py",
        "        self._group.detached += 1\n",
        "        self._group.detached += 0\n",
        (*_DETACHED, _LAWS.format("partition")),
        "--guarantee exactly-once --with detaching --mix clean --faults 15 --gap 2 --session 20",
    ),
    Mutant(
        "offsets are committed over what is not answered",
        "lost",
        "worker/core/offsets.py",
        "            self.watermark = self.lowest\n",
        "            self.watermark = self.last + 1\n",
        (_LAWS.format("offset"), _FAKE.format("tasks")),
        "--load short --mix kill-process --faults 10 --gap 2",
    ),
    Mutant(
        "what was answered out of order runs again",
        "duplicate",
        "worker/core/former_ranges.py",
        "        return bool(ranges) and ranges[0][0] <= offset\n",
        "        return False\n",
        (_FAKE.format("orderings"), _LAWS.format("partition")),
        "--ordering unordered --with detaching --mix clean --faults 15 --gap 2 --session 20",
    ),
    Mutant(
        "a dead letter is answered and not sent",
        "dead letters",
        "worker/process/delivery.py",
        "        self._producer.produce(self._config.dead_letter_topic, *sending.record, sending)\n",
        '        self._send(self._failure_answer(sending.outcome, sending.failure, "DEAD_LETTERED"))\n',
        (_FAKE.format("attempts"), _FAKE.format("tasks")),
        _REQUESTS,
    ),
    Mutant(
        "the answer does not wait for all follow-up requests",
        "follow-ups",
        "worker/process/delivery.py",
        "        if not pending.left and not pending.over:\n",
        "        if not pending.over:\n",
        (_FAKE.format("follow_ups"),),
        "--with follow-ups --mix kill-process+broker-kill --faults 15",
    ),
    Mutant(
        "a request that waits is not cancelled",
        "cancel",
        "worker/process/cancellations.py",
        "        self._results.cancel(task, owned)\n",
        "        owned.requeue(task)\n",
        (_FAKE.format("cancel"),),
        "--load short --with cancels --mix clean --faults 4 --session 20",
    ),
    Mutant(
        "a waiting request is cancelled before a commit covers it",
        "duplicate",
        "worker/process/cancellations.py",
        "        if not self._guarantee.starts_once:\n",
        "        if True:\n",
        (_FAKE.format("cancel_once"),),
        "--guarantee at-most-once --brokers 3 --load short --with cancels --mix cut --faults 12",
    ),
    Mutant(
        "a waiting request is cancelled although a drain takes back its start",
        "duplicate",
        "worker/process/cancellations.py",
        "        return self._lifecycle.may_start and owned.starts.may_start(offset)\n",
        "        return owned.starts.may_start(offset)\n",
        (_FAKE.format("cancel_once"),),
        "--guarantee at-most-once --load short --with cancels --mix restart+scale --faults 8",
    ),
    Mutant(
        "a cancelled task that fails is tried again",
        "outcome",
        "worker/process/results.py",
        "        outcome.verdict, outcome.failure, outcome.sent = Verdict.CANCELLED, _CANCELLED, ()\n",
        "        pass\n",
        (_FAKE.format("cancel"),),
        "--with cancels --mix clean --faults 6 --session 20",
    ),
    Mutant(
        "a checkpoint is forgotten",
        "checkpoints",
        "worker/core/long_task.py",
        "checkpoint=data, checkpoint_epoch=epoch)\n",
        'checkpoint=b"", checkpoint_epoch=epoch)\n',
        (_FAKE.format("long_tasks"), _LAWS.format("long_task")),
        "--with checkpoints --mix kill-process+restart --faults 30",
    ),
    Mutant(
        "what an earlier start writes late is believed",
        "checkpoints",
        "worker/state/table.py",
        "        if known is not None and state.start < known.start:\n",
        "        if known is not None and state.start < state.start:\n",
        (_LAWS.format("state_table"), _FAKE.format("long_tasks")),
        "--load short --with checkpoints --mix freeze-process+cut+kill-process --faults 10",
    ),
    Mutant(
        "any holder may answer a detached task",
        "duplicate",
        "worker/core/detached.py",
        "        return entry_of(self.offset, committed) == Detached(self.task_attempt, self.holder)\n",
        "        return entry_of(self.offset, committed) is not None\n",
        _DETACHED,
        _DETACHING,
    ),
    Mutant(
        "the owner does not wait until its entry is visible",
        "duplicate",
        "worker/process/watcher.py",
        "    if one.task.vacated and one.recorded:\n",
        "    if False:\n",
        ("tests/unit/test_watcher.py",),
        _DETACHING,
    ),
    Mutant(
        "tasks that were taken back overtake one that the child skips",
        "order",
        "worker/isolation/link.py",
        "                seam.block(task)\n",
        "                pass\n",
        ("tests/isolation/test_link.py",),
        "--load short --with isolation --mix restart+scale --faults 8",
    ),
    Mutant(
        "a holder answers without looking",
        "duplicate",
        "worker/process/holder.py",
        "            self._look(claim, lambda: answer(outcome))\n",
        "            answer(outcome)\n",
        _DETACHED,
        _DETACHING,
    ),
    Mutant(
        "the owner reads marks whose transactions are open",
        "duplicate",
        "worker/process/watcher.py",
        "partition, stable=True)\n",
        "partition, stable=False)\n",
        _DETACHED,
        _DETACHING,
    ),
    Mutant(
        "the owner does not wait until its take-over is committed",
        "duplicate",
        "worker/core/detached.py",
        "        return Step.TAKE_OVER if recorded else Step.WAIT\n",
        "        return Step.TAKE_OVER\n",
        (*_DETACHED, "tests/model"),
        _DETACHING,
    ),
    Mutant(
        "one look at the group is enough to take a task over",
        "duplicate",
        "worker/core/detached.py",
        "        return since is not None and self._looked_at - since >= ABSENT_SECONDS\n",
        "        return since is not None\n",
        (*_DETACHED, "tests/unit/test_detached.py"),
        _DETACHING,
    ),
)
