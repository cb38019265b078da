"""The names of the record headers that the worker and its tools write."""

from __future__ import annotations

ORIGIN_TOPIC = "x-origin-topic"
ORIGIN_PARTITION = "x-origin-partition"
ORIGIN_OFFSET = "x-origin-offset"
ATTEMPTS = "x-attempts"
ERROR_TYPE = "x-error-type"
ERROR_MESSAGE = "x-error-message"
VALUE_DROPPED = "x-value-dropped"

# All headers that the worker adds to a dead letter.
DEAD_LETTER = (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ATTEMPTS, ERROR_TYPE, ERROR_MESSAGE, VALUE_DROPPED)

# In place of the headers of a record if the client cannot read them.
UNREADABLE = "x-unreadable-headers"

# On a follow-up request: the origin of its parent.
PARENT = "x-parent"

# On a replayed request: the position of the dead letter.
REPLAYED_FROM = "x-replayed-from"
