"""Errors after which a consumer joins the group again with a new client."""

from __future__ import annotations

import time

import confluent_kafka as ck
import structlog

from worker.kafka.clients import FATAL

log = structlog.get_logger("kafka")
_UNSUPPORTED = (ck.KafkaError.UNSUPPORTED_VERSION, ck.KafkaError._UNSUPPORTED_FEATURE)  # noqa: SLF001 - so named
_UNSUPPORTED_TEXTS = tuple(ck.KafkaError(code).str() for code in _UNSUPPORTED)
_UNRELEASED = ck.KafkaError.UNRELEASED_INSTANCE_ID
_UNRELEASED_TEXT = ck.KafkaError(_UNRELEASED).str()
REJOIN_SECONDS = 1.0  # between attempts to join while the broker still knows a static member's previous process
REJOIN_LOG_SECONDS = 60.0  # between two log lines about that


def is_unsupported(error: ck.KafkaError) -> bool:
    """Return whether the broker lacks a feature that we need. A fatal error has its cause only in its text."""
    return error.code() in _UNSUPPORTED or (
        error.code() == FATAL and any(text in error.str() for text in _UNSUPPORTED_TEXTS)
    )


def is_in_use(error: ck.KafkaError) -> bool:
    """Return whether the broker still knows the previous process of this static member."""
    return error.code() == _UNRELEASED or (error.code() == FATAL and _UNRELEASED_TEXT in error.str())


class RejoinPause:
    """The pause between joins after the crash of a static member, whose id the broker keeps until its session ends."""

    def __init__(self) -> None:
        self._logged_at = float("-inf")

    def wait(self) -> None:
        """Wait before the next attempt to join, and log that from time to time. Poll thread."""
        now = time.monotonic()
        if now - self._logged_at >= REJOIN_LOG_SECONDS:
            self._logged_at = now
            log.warning("group_instance_id.in_use", again_after=REJOIN_SECONDS)
        time.sleep(REJOIN_SECONDS)
