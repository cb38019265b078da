"""Environment variables, and the settings that are read from them."""

from __future__ import annotations

import pytest

from worker.errors import ExitCode, SettingsError
from worker.settings import Settings

NEEDED = {
    "KAFKA_BOOTSTRAP_SERVER": "kafka:9092",
    "KAFKA_REQUEST_TOPIC": "requests",
    "KAFKA_ACK_TOPIC": "answers",
    "KAFKA_CONSUMER_GROUP_ID": "workers",
    "WORKER_HANDLER": "package.module:function",
}
SECRET = "tr0ub4dor&3"


def load(**variables: str) -> Settings:
    """Return the settings from the required variables and these."""
    return Settings.load(NEEDED | variables)


def lines(**variables: str) -> list[str]:
    """Return the lines of the error with which these variables are refused."""
    with pytest.raises(SettingsError) as caught:
        load(**variables)
    assert caught.value.exit_code is ExitCode.SETTINGS_INVALID
    return str(caught.value).splitlines()


def the_line(**variables: str) -> str:
    (line,) = lines(**variables)
    return line
