"""List every metric and log event with its meaning. Dashboards and the reference pages build on this list.

Names are stable. Event texts are constant; everything that varies is in the fields.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """A Prometheus metric. Its exported name begins with ``worker_``. All but ``processes`` have the label ``slot``."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    label: str | None = None


METRICS = (
    Metric("tasks_total", "counter", "Requests answered, by outcome of the answer.", "outcome"),
    Metric("attempts_total", "counter", "Attempts, by verdict.", "verdict"),
    Metric("task_seconds_total", "counter", "Seconds spent in handlers."),
    Metric("task_cpu_seconds_total", "counter", "CPU seconds spent in handlers."),
    Metric("records_total", "counter", "Records taken from the request topics."),
    Metric("record_bytes_total", "counter", "Bytes of the keys and values of those records."),
    Metric("dead_letters_total", "counter", "Dead letters confirmed by the broker."),
    Metric("follow_ups_total", "counter", "Follow-up requests that handlers sent, confirmed by the broker."),
    Metric("repeated_offsets_total", "counter", "Records skipped because an earlier record has the same offset."),
    Metric("delivery_failures_total", "counter", "Deliveries that failed and were tried again, by error.", "code"),
    Metric("commits_total", "counter", "Offset commits confirmed."),
    Metric(
        "commit_failures_total",
        "counter",
        "Offset commits that failed, by error. A failed commit may still have been applied.",
        "code",
    ),
    Metric(
        "transactions_aborted_total", "counter", "Transactions that were aborted and tried again, by error.", "code"
    ),
    Metric("lost_total", "counter", "At-most-once: requests that may have started and will not start again."),
    Metric("cancellations_total", "counter", "Running tasks that were cancelled, by reason.", "reason"),
    Metric("detached_total", "counter", "Tasks that were detached: they kept running while their partition moved."),
    Metric("taken_over_total", "counter", "Detached tasks of other processes that this process started again."),
    Metric("superseded_total", "counter", "Detached tasks of this process that another process took over."),
    Metric(
        "gave_way_total", "counter", "Times this process gave its partitions to other processes during a long task."
    ),
    Metric(
        "cancel_requests_total",
        "counter",
        "Cancel requests that reached their request, by its state: queued, running, answered.",
        "found",
    ),
    Metric("state_failures_total", "counter", "Records of the state topic that were not delivered, by error.", "code"),
    Metric("rebalances_total", "counter", "Rebalance callbacks, by kind.", "kind"),
    Metric(
        "dropped_total",
        "counter",
        "Results that were dropped because the task was cancelled or no longer belonged to this process.",
    ),
    Metric("polls_total", "counter", "Turns of the main loop."),
    Metric("pauses_total", "counter", "Times that fetching from a partition was paused."),
    Metric("run_seconds", "histogram", "Run time of one attempt."),
    Metric("settle_seconds", "histogram", "Time from the end of an attempt to the confirmed delivery of its answer."),
    Metric("assigned_partitions", "gauge", "Partitions that this process owns."),
    Metric("queued_records", "gauge", "Records that were fetched but have not started."),
    Metric("queued_bytes", "gauge", "Bytes of those records."),
    Metric("unconfirmed_answers", "gauge", "Answers that were produced but are not confirmed yet."),
    Metric("long_tasks", "gauge", "Long tasks that are running, as announced on the state topic."),
    Metric("task_progress", "gauge", "Progress of each running task whose handler reports it, from 0 to 1.", "task"),
    Metric("lag", "gauge", "Offsets from the first unanswered request to the end, in all partitions of the process."),
    Metric("busy", "gauge", "1 while a task is running."),
    Metric(
        "detached_tasks", "gauge", "Tasks that this process runs or answers although it no longer has their partition."
    ),
    Metric("awaited_tasks", "gauge", "Tasks of this process's partitions that run in other processes."),
    Metric(
        "busy_long",
        "gauge",
        "1 while a task is running that has run for WORKER_LONG_AFTER, or for a second if it has reported progress or "
        "saved a checkpoint.",
    ),
    Metric("child_ends_total", "counter", "Child processes that ended and were replaced, by cause.", "cause"),
    Metric("child_resident_bytes", "gauge", "Memory of the child processes and everything they have started."),
    Metric("paused", "gauge", "1 while fetching from any partition is paused."),
    Metric(
        "state",
        "gauge",
        "State of the process: 0 new, 10 joining the group, 20 running, 30 draining, 40 cancelling its running tasks, "
        "50 closed.",
    ),
    # Counted by the supervisor:
    Metric(
        "processes", "gauge", "Worker processes that are alive, over all slots. The only metric without the label slot."
    ),
    Metric(
        "process_restarts_total",
        "counter",
        "Worker processes that were restarted, by how the last one ended.",
        "ending",
    ),
    Metric("process_up", "gauge", "1 while the slot's process is alive."),
    Metric("process_resident_bytes", "gauge", "Resident memory of the slot's process."),
    Metric("process_cpu_seconds", "gauge", "CPU seconds of the slot's process, over all its threads."),
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
    "supervisor.failed",
    "supervisor.stopped",
    "process.started",
    "process.unstartable",
    "process.ended",
    "process.restarting",
    "process.crash_loop",
    "process.slow",
    "process.stuck",
    "process.killed",
    "orphan.reaped",
    "http.listening",
    "http.failed",
    # worker process
    "process.ready",
    "process.draining",
    "process.blocked",
    "process.failed",
    "process.gave_way",
    "process.took_part",
    "record.repeated",
    "task.finished",
    "task.suppressed",
    "task.retrying",
    "task.cancelling",
    "task.dropped",
    "task.detached",
    "task.released",
    "task.superseded",
    "task.settled_elsewhere",
    "task.vacated",
    "task.taken_over",
    "task.record_deleted",
    "delivery.failed",
    "commit.failed",
    "transaction.aborted",
    "transaction.hung",
    "tasks.lost",
    "isolation.cannot_fork",
    "child.started",
    "child.unstartable",
    "child.ended",
    "child.unreadable",
    "handler.shutdown_failed",
    "tracing.unavailable",
    "commit_metadata.ignored",
    "checkpoint.ignored",
    "checkpoint.refused",
    "states.unavailable",
    "states.reader_failed",
    "states.reader_ended",
    "store.answers_resent",
    "store.unavailable",
    "group_instance_id.in_use",
    "membership.stale",
    "membership.leave_failed",
    "partitions.assigned",
    "partitions.revoked",
    "partitions.lost",
    "partitions.holding",
    "client.error",
    "client.stranded",
    "client.close_timed_out",
    "client.log",
    "protocol.fallback",
]

EVENTS: dict[Event, str] = {
    "settings.warning": "A setting or a topic may not have the expected effect. Field: reason.",
    "preflight.waiting": "The worker waits at its start for the broker or a topic. Field: reason.",
    "supervisor.started": "The supervisor starts the worker processes. Fields: processes, group, topics.",
    "supervisor.signal": "The supervisor received a signal. Field: signal.",
    "supervisor.draining": "The replica drains: no new task starts; running tasks finish. Field: running (origins).",
    "supervisor.cancelling": "The running tasks are cancelled after a second signal or WORKER_DRAIN_TIMEOUT. Field: "
    "running (origins).",
    "supervisor.failed": "The supervisor has a defect and ends, with its processes. Field: exception.",
    "supervisor.stopped": "Every process has ended. Field: exit_code.",
    "process.started": "A worker process was started. Fields: slot, pid.",
    "process.unstartable": "The kernel refused to start a process. The supervisor tries again. Fields: slot, reason.",
    "process.ended": "A worker process ended. Fields: slot, pid, ending (exit code, signal, out_of_memory, stuck); "
    "about the task that it ran when last seen: topic, partition, offset, key, sequence, attempt.",
    "process.restarting": "The slot gets a new process after a delay. Fields: slot, after (seconds).",
    "process.crash_loop": "Processes crash too often, so the replica stops. Field: reason.",
    "process.slow": "The main loop stands still, but the process or a subprocess uses CPU, so the process is left "
    "alone. Fields: slot, seconds, and the fields of process.ended about the task.",
    "process.stuck": "The main loop stands still and the process uses no CPU, so it is killed. Fields: as "
    "process.slow.",
    "process.killed": "A process was killed because it was stuck or did not end in time. Fields: slot, pid.",
    "orphan.reaped": "PID 1 inherited an ended process and reaped it. Fields: pid, status.",
    "http.listening": "The HTTP endpoints accept connections. Field: port.",
    "http.failed": "A request to the HTTP endpoints failed because of a bug in the worker.",
    "process.ready": "The startup barrier is open, so the process may start tasks. Field: protocol.",
    "process.draining": "The process finishes its running tasks and leaves the group.",
    "process.blocked": "Other requests wait behind a task that was given up but does not end, so the process is "
    "replaced.",
    "process.failed": "The process cannot continue. Fields: code, reason.",
    "task.finished": "A request was answered. Sampled above a rate; at level warning unless the outcome is OK. "
    "Fields: topic, partition, offset, key, sequence, attempt, outcome, wait, run, cpu, settle (seconds), error, "
    "traceback.",
    "task.suppressed": "Some task.finished lines were left out. Field: count (since the last line).",
    "task.retrying": "An attempt failed, and another one follows. Fields: as task.finished, and after (seconds).",
    "task.cancelling": "The running task was cancelled but has not ended yet. Fields: reason, partition, offset.",
    "task.dropped": "A result was dropped: the lease had ended, or the task was cancelled or taken over. Fields: as "
    "task.finished, and reason.",
    "process.gave_way": "A long task runs while other requests wait, so this process gives its partitions to other "
    "processes. Field: partitions (their number).",
    "process.took_part": "The long task has ended, and the process takes partitions again.",
    "record.repeated": "Two records of a partition have the same offset, so the second one is skipped. A broker that "
    "continued after its disk was full can leave such a log. If the second record is another request, submit it again. "
    "Fields: topic, partition, offset, key (of the second).",
    "task.detached": "A task keeps running although its partition moves. Fields: topic, partition, offset, attempt, "
    "run (seconds so far).",
    "task.released": "A detached task has ended without an answer. The owner of its partition starts the next attempt. "
    "Fields: topic, partition, offset, attempts (so far).",
    "task.superseded": "Another process has taken over this detached task, so its result is dropped. Fields: topic, "
    "partition, offset.",
    "task.settled_elsewhere": "The holder of a detached task has answered it. Logged by the owner of the partition. "
    "Fields: topic, partition, offset, holder.",
    "task.vacated": "The holder of a detached task is gone. It may no longer answer once the next commit is "
    "confirmed. Fields: topic, partition, offset, holder.",
    "task.taken_over": "A detached task starts again in this process because its holder is gone or has released it. "
    "Fields: topic, partition, offset, holder, attempts (so far).",
    "task.record_deleted": "The holder of a detached task is gone and retention has deleted the request, so it will "
    "not be answered. Fields: topic, partition, offset.",
    "delivery.failed": "Answers or dead letters were not delivered and will be produced again. Fields: code, reason, "
    "count.",
    "commit.failed": "A commit failed. A later commit contains the same offsets. Fields: code, reason.",
    "transaction.aborted": "A transaction was aborted. It is repeated for the partitions whose leases are still "
    "valid. Fields: code, reason, answers (number in the transaction).",
    "transaction.hung": "A call of the Kafka client does not return. A new client determines whether the transaction "
    "was committed. Field: seconds.",
    "isolation.cannot_fork": "Importing the handler left threads, sockets or devices that cannot be forked. So every "
    "child process imports the handler itself, and starts more slowly. Field: found.",
    "child.started": "A child process was started to run the handler. Field: pid.",
    "child.unstartable": "The kernel refused to start a child process. Long tasks of other children continue, and the "
    "worker process tries again. Field: reason.",
    "child.ended": "A child process ended, together with everything that it had started. Fields: pid, ending (exit "
    "code or signal), output (after a crash: its last output), cause (crash, recycled, timeout, deadline, memory, "
    "revoked, drain, requested, channel).",
    "handler.shutdown_failed": "The handler's worker_process_shutdown() raised an exception.",
    "tracing.unavailable": "The OTEL_ variables ask for traces that cannot be exported. The worker runs without "
    "tracing. Field: reason.",
    "child.unreadable": "A child process sent data that the worker cannot read, so it is killed. Fields: pid, reason.",
    "tasks.lost": "At-most-once: these requests may have started in a process that is gone. They will not start "
    "again. Fields: partition, offsets (ranges).",
    "commit_metadata.ignored": "The metadata of a committed offset is damaged or was written by another program. "
    "Fields: partition, offset, reason.",
    "checkpoint.ignored": "A handler saved a checkpoint, but KAFKA_STATE_TOPIC is not set. Logged once per process.",
    "checkpoint.refused": "A checkpoint is too large for the state topic. The previous one is kept. Fields: origin, "
    "reason.",
    "states.unavailable": "The state topic could not be read for 30 seconds, so this partition starts without "
    "checkpoints. Field: partition.",
    "states.reader_failed": "The broker does not allow the worker to read the state topic. The reader is restarted. "
    "Field: reason.",
    "states.reader_ended": "The reader of the state topic ended and is restarted. Fields: pid, status.",
    "store.answers_resent": "Answers whose results are in the offset store, but may be missing in Kafka, were sent "
    "again. Fields: partition, start, stop (offsets), answers.",
    "store.unavailable": "The offset store cannot be reached, or refuses. The worker tries again. Rate-limited as "
    "client.error. Fields: reason, repeated.",
    "group_instance_id.in_use": "The broker still knows this static member's previous process. Logged once a minute. "
    "Field: again_after (seconds).",
    "membership.stale": "The coordinator's view of this member differs from the client's, because the client missed "
    "a rebalance or was removed from the group. The process drains and is replaced. Fields: client, current, target "
    "(partitions; the latter two in the coordinator's view).",
    "membership.leave_failed": "A dead process could not be removed from the group. Its partitions wait for the "
    "session time-out. Fields: member, reason.",
    "partitions.assigned": "Partitions were assigned to this process. Field: partitions.",
    "partitions.revoked": "The group asks for partitions back. Field: partitions.",
    "partitions.lost": "The group has taken partitions away. Field: partitions.",
    "partitions.holding": "A revoked partition waits for its running task. Fields: partitions, limit (seconds).",
    "client.error": "The Kafka client reports a problem. It recovers by itself unless process.failed follows. The "
    "same line is logged at most once a minute. Fields: code, reason, repeated (lines left out since the last one).",
    "client.stranded": "A Kafka client has lost the addresses of all brokers, a defect of librdkafka in an outage of "
    "the whole cluster. A producer goes on with a new client. A consumer's process drains and is replaced. Field: "
    "client.",
    "client.close_timed_out": "The consumer of a process that leaves did not get a reply from the group coordinator "
    "within 10 s. The supervisor removes the process from the group.",
    "client.log": "A log line of librdkafka. Rate-limited as client.error. Fields: facility, message, repeated.",
    "protocol.fallback": "The broker lacks the consumer protocol, so the worker uses the one in the field protocol.",
}
