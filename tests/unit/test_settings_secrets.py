"""Secrets in the settings are never shown."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest

from tests.unit.environment import NEEDED, SECRET, load
from worker.errors import SettingsError
from worker.settings import Settings
from worker.settings.masking import looks_secret

if TYPE_CHECKING:
    from pathlib import Path


SECRETS = {
    "KAFKA_CONFIG_SASL_PASSWORD": SECRET,
    "KAFKA_CONFIG_SSL_KEY_PEM": SECRET,
    "KAFKA_CONFIG_SSL_KEYSTORE_PASSWORD": SECRET,
    "KAFKA_CONFIG_SASL_OAUTHBEARER_CLIENT_SECRET": SECRET,
    "KAFKA_CONFIG_SASL_OAUTHBEARER_CONFIG": SECRET,
    "WORKER_HANDLER_KWARGS": f'{{"db": {{"apiKey": "{SECRET}"}}, "urls": ["pg://me:{SECRET}@host/db"], "n": 3}}',
}


def test_secrets_are_masked() -> None:
    """``repr``, ``str`` and the description do not show them. Harmless values stay readable."""
    settings = load(**SECRETS, KAFKA_CONFIG_SASL_USERNAME="me", KAFKA_CONFIG_SSL_KEY_LOCATION="/keys/one")
    described = {name: value for name, value, _ in settings.describe()}

    assert SECRET not in "".join([repr(settings), str(settings), f"{settings!r:s}", *described.values()])
    assert SECRET not in repr(settings.link()) + repr(settings.properties)
    assert described["KAFKA_CONFIG_SASL_PASSWORD"] == "***"
    assert described["WORKER_HANDLER_KWARGS"] == '{"db": {"apiKey": "***"}, "urls": ["pg://me:***@host/db"], "n": 3}'
    assert described["KAFKA_CONFIG_SASL_USERNAME"] == "me"
    assert described["KAFKA_CONFIG_SSL_KEY_LOCATION"] == "/keys/one"


def test_secrets_reach_the_client() -> None:
    """The properties of the client have the real value."""
    assert load(**SECRETS).client_properties()["sasl.password"] == SECRET


def test_values_from_files_are_masked(tmp_path: Path) -> None:
    """A value that is kept in a file is treated as a secret, whatever its variable is called."""
    (tmp_path / "file").write_text(SECRET.replace("&", "-"))
    path = str(tmp_path / "file")
    settings = load(KAFKA_CONSUMER_GROUP_ID="", KAFKA_CONSUMER_GROUP_ID_FILE=path, KAFKA_CONFIG_SASL_USERNAME_FILE=path)
    described = {name: value for name, value, _ in settings.describe()}

    assert described["KAFKA_CONSUMER_GROUP_ID"] == f"*** (from {path})"
    assert described["KAFKA_CONFIG_SASL_USERNAME"] == f"*** (from {path})"
    assert "tr0ub4dor" not in repr(settings) + repr(settings.properties)


def test_errors_do_not_quote_secrets(tmp_path: Path) -> None:
    """Neither the message nor the traceback with its local variables shows them, and the error has no context."""
    (tmp_path / "file").write_text(SECRET)
    wrong = {**SECRETS, "WORKER_HANDLER_KWARGS": f'{{"password": "{SECRET}"', "WORKER_MAX_ATTEMPTS": "x"}
    wrong |= {"KAFKA_CONFIG_SSL_TRUSTSTORE_PASSWORD": SECRET, "WORKER_PROCESSES_FILE": str(tmp_path / "file")}
    with pytest.raises(SettingsError) as caught:
        Settings.load(NEEDED | wrong)

    assert len(str(caught.value).splitlines()) == 4
    below = caught.tb.tb_next  # without the locals of this test
    printed = traceback.TracebackException(SettingsError, caught.value, below, capture_locals=True).format()
    assert SECRET not in "".join(printed)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.pem", "dbpassword", "API_KEY", "clientSecret", "token"])
def test_a_name_with_a_secret_word_looks_secret(name: str) -> None:
    """The word may be in upper or lower case, with any separator or none."""
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["ssl.key.location", "depth", "monkey", "keytab", "sasl.username", "token.url", ""])
def test_other_names_do_not_look_secret(name: str) -> None:
    """The place of a secret, or the user it belongs to, is not a secret."""
    assert not looks_secret(name)
