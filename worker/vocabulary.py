"""Every metric and log event by name, with its unit and meaning: the one place that dashboards are written from.

Names are stable. Event texts are constant; what varies stands in the fields.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """A Prometheus metric. ``worker_`` is put before the name, ``slot`` is a label of all."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    label: str | None = None


METRICS = (
    Metric("tasks_total", "counter", "Requests answered, by the outcome in the answer.", "outcome"),
    Metric("attempts_total", "counter", "Starts of a task, by what came of them.", "verdict"),
    Metric("task_seconds_total", "counter", "Seconds the service thread spent in handlers."),
    Metric("task_cpu_seconds_total", "counter", "CPU seconds of the service thread in handlers."),
    Metric("records_total", "counter", "Records taken from the request topics."),
    Metric("record_bytes_total", "counter", "Bytes of key and value of those records."),
    Metric("dead_letters_total", "counter", "Dead letters confirmed by the broker."),
    Metric("delivery_failures_total", "counter", "Deliveries that failed and were tried again, by error.", "code"),
    Metric("commits_total", "counter", "Offset commits confirmed."),
    Metric("commit_failures_total", "counter", "Offset commits that failed (unknown, not undone), by error.", "code"),
    Metric("transactions_aborted_total", "counter", "Transactions aborted and tried again, by error.", "code"),
    Metric("lost_total", "counter", "At-most-once: requests that may have been started and will not be again."),
    Metric("rebalances_total", "counter", "Rebalance callbacks, by kind.", "kind"),
    Metric("dropped_total", "counter", "Results dropped because their lease had ended, and tasks cancelled by drain."),
    Metric("polls_total", "counter", "Turns of the poll loop."),
    Metric("pauses_total", "counter", "Times fetching was paused."),
    Metric("run_seconds", "histogram", "Run time of one attempt."),
    Metric("settle_seconds", "histogram", "From the end of an attempt to the confirmed delivery of its answer."),
    Metric("assigned_partitions", "gauge", "Partitions this process owns."),
    Metric("queued_records", "gauge", "Records taken from the broker and not started."),
    Metric("queued_bytes", "gauge", "Bytes of those records."),
    Metric("unconfirmed_answers", "gauge", "Answers produced whose delivery is not confirmed yet."),
    Metric("busy", "gauge", "1 while a task runs."),
    Metric("paused", "gauge", "1 while fetching is paused."),
    Metric("state", "gauge", "Lifecycle of the process by number: see worker.core.lifecycle.State."),
    # Of the supervisor.
    Metric("processes", "gauge", "Worker processes alive, of all slots: the one metric without that label."),
    Metric("process_restarts_total", "counter", "Worker processes started again, by how the last one ended.", "ending"),
    Metric("process_up", "gauge", "1 while the slot's process is alive."),
    Metric("process_resident_bytes", "gauge", "Resident memory of the slot's process."),
    Metric("process_cpu_seconds", "gauge", "CPU seconds of the slot's process, all threads."),
)

BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0)

Event = Literal[
    # supervisor
    "settings.warning",
    "preflight.waiting",
    "supervisor.started",
    "supervisor.signal",
    "supervisor.draining",
    "supervisor.cancelling",
    "supervisor.stopped",
    "process.started",
    "process.unstartable",
    "process.ended",
    "process.restarting",
    "process.crash_loop",
    "process.slow",
    "process.stuck",
    "process.killed",
    "stranger.reaped",
    "http.listening",
    "http.failed",
    # worker process
    "process.ready",
    "process.draining",
    "process.failed",
    "task.finished",
    "task.suppressed",
    "task.retrying",
    "task.cancelling",
    "task.dropped",
    "delivery.failed",
    "commit.failed",
    "transaction.aborted",
    "transaction.hung",
    "tasks.lost",
    "notes.ignored",
    "store.answered_again",
    "instance.occupied",
    "membership.stale",
    "partitions.assigned",
    "partitions.revoked",
    "partitions.lost",
    "partitions.holding",
    "client.error",
    "client.log",
    "protocol.fallback",
]

EVENTS: dict[Event, str] = {
    "settings.warning": "A setting or topic will not do what it seems to. Field: reason.",
    "preflight.waiting": "The start waits for the broker or a topic. Field: reason.",
    "supervisor.started": "The supervisor runs. Fields: processes, group, topics.",
    "supervisor.signal": "A signal came. Field: signal.",
    "supervisor.draining": "No new task starts from now on; running ones finish.",
    "supervisor.cancelling": "Running tasks are cancelled: a second signal, or the drain took too long.",
    "supervisor.stopped": "Every process has ended. Field: exit_code.",
    "process.started": "A worker process was started. Fields: slot, pid.",
    "process.unstartable": "The kernel refused another process, for now. Fields: slot, reason.",
    "process.ended": "A worker process ended. Fields: slot, pid, ending (exit code, signal, out_of_memory, stuck).",
    "process.restarting": "It will be started again. Fields: slot, after (seconds).",
    "process.crash_loop": "Processes end too often to go on. Field: reason.",
    "process.slow": "The poll loop does not turn, but the process uses CPU: working. Fields: slot, seconds.",
    "process.stuck": "The poll loop does not turn, no CPU is used: it will be killed. Fields: slot, seconds.",
    "process.killed": "A stuck process, or one that outlasted its deadline, was killed. Fields: slot, pid.",
    "stranger.reaped": "An orphan that PID 1 inherited was reaped. Fields: pid, status.",
    "http.listening": "The operations endpoints are up. Field: port.",
    "http.failed": "A request to the operations endpoints met a defect of ours.",
    "process.ready": "The process may start tasks: the group stands. Field: protocol.",
    "process.draining": "The process finishes what runs and leaves.",
    "process.failed": "The process cannot go on. Fields: code, reason.",
    "task.finished": "The canonical line: one per answered request (sampled above a rate). Fields: topic, partition, "
    "offset, sequence, attempt, outcome, wait, run, cpu, settle (seconds), error.",
    "task.suppressed": "Canonical lines left out since the last such line. Field: count.",
    "task.retrying": "An attempt failed and will be repeated. Fields: as task.finished, after (seconds).",
    "task.cancelling": "The running task was asked to stop. Field: reason.",
    "task.dropped": "A result was dropped: its lease ended or it was cancelled. Fields: origin, reason.",
    "delivery.failed": "An answer or dead letter was not delivered and will be produced again. Fields: code, reason.",
    "commit.failed": "A commit failed; a later one carries the same offsets. Fields: code, reason.",
    "transaction.aborted": "A transaction was aborted; it is tried again where the leases are valid. Fields: code, "
    "reason, answers (in it).",
    "transaction.hung": "A call of the client did not return; a new client finds out what became of the transaction. "
    "Field: seconds.",
    "tasks.lost": "At-most-once: these requests may have been started before a crash and will not be again. Fields: "
    "partition, offsets (ranges).",
    "notes.ignored": "What stands beside a committed offset is not from this program, or damaged. Fields: partition, "
    "offset, reason.",
    "store.answered_again": "Results that the store had and Kafka might not were answered again. Fields: partition, "
    "start, stop (offsets), answers.",
    "instance.occupied": "The static member that was killed has the name yet. Field: again_after (seconds).",
    "membership.stale": "The group has changed this member's partitions, or given it up, and will not say so again: "
    "the process finishes what is its own, and is replaced. Fields: ours, has, shall (partitions; as the group sees "
    "it, the latter two).",
    "partitions.assigned": "Field: partitions.",
    "partitions.revoked": "Field: partitions.",
    "partitions.lost": "Field: partitions.",
    "partitions.holding": "A revoked partition waits for its running task. Fields: partitions, limit (seconds).",
    "client.error": "The Kafka client reports trouble; it recovers by itself unless a process.failed follows.",
    "client.log": "A log line of librdkafka. Fields: facility, message.",
    "protocol.fallback": "The broker has no consumer protocol; classic is used.",
}
