"""The names of programs, and the units that tables and plots use."""

from __future__ import annotations

from benchmarks.figures import TIMES

WORKER = "worker"
PROCESS = "worker, process isolation"
EXTRA_SLOT = "worker, extra slot"
DETACHING = "worker, detaching"
BOTH = "worker, detaching and an extra slot"
NO_STATE_TOPIC = "worker, no state topic"
BARE, ARROYO, PARALLEL, SHARE_GROUP, CELERY, CELERY_RABBIT, DRAMATIQ, DRAMATIQ_ONE, RAY = OTHER_PROGRAMS = (
    "bare loop",
    "arroyo",
    "parallel-consumer",
    "share group",
    "Celery",
    "Celery on RabbitMQ",
    "Dramatiq",
    "Dramatiq, prefetch 1",
    "Ray",
)
VARIANTS = (PROCESS, DETACHING, EXTRA_SLOT, BOTH, NO_STATE_TOPIC)  # the worker with other settings
PROGRAMS = (WORKER, *VARIANTS, *OTHER_PROGRAMS)
PEERS = OTHER_PROGRAMS[1:]  # alternatives for a user; the bare loop is only a reference
SHARE = f"CPU seconds of tasks ÷ (processes {TIMES} time)"
EFFICIENCY = f"task time ÷ (processes {TIMES} time)"
BOUND = "makespan ÷ lower bound"
SHORT_WAIT = "mean wait of tasks under 1 s"
RECEIVED = "bytes received ÷ bytes of requests"
MEMORY = "MB PSS, all processes"
LESS_IS_BETTER = ("CPU µs/task", MEMORY, "ms", "s", BOUND, RECEIVED)  # units
