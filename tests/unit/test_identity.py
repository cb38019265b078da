"""Names of replicas: unique on this machine, and free again when the replica has ended."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from worker.errors import SettingsError
from worker.supervisor.identity import claimed

ROOT = Path(__file__).parents[2]
HOST = socket.gethostname()


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex}"


def test_a_replica_gets_its_configured_name(group: str) -> None:
    with claimed(group, "alpha") as name:
        assert name == "alpha"


def test_a_name_in_use_is_refused(group: str) -> None:
    with (
        claimed(group, "alpha"),
        pytest.raises(SettingsError, match=f"WORKER_REPLICA='alpha'.*{group}"),
        claimed(group, "alpha"),
    ):
        pass


def test_a_name_is_free_after_its_replica_has_ended(group: str) -> None:
    for _ in range(2):
        with claimed(group, "alpha"):
            pass
    with contextlib.suppress(ZeroDivisionError), claimed(group, "alpha"):
        raise ZeroDivisionError
    with claimed(group, "alpha") as name:
        assert name == "alpha"


def test_another_name_and_the_same_name_in_another_group_are_free(group: str) -> None:
    with claimed(group, "alpha"), claimed(group, "beta") as beta, claimed(f"{group}x", "alpha") as alpha:
        assert (beta, alpha) == ("beta", "alpha")


def test_the_default_name_is_the_host_name_with_a_number_if_it_is_taken(group: str) -> None:
    with claimed(group, "") as first, claimed(group, "") as second:
        assert (first, second) == (HOST, f"{HOST}.1")
        with claimed(group, "") as third:
            assert third == f"{HOST}.2"
    with claimed(group, "") as again:
        assert again == HOST


@pytest.mark.parametrize("character", ["g", "\u00fc", "\u2603"])
def test_replicas_get_names_in_a_group_with_a_long_name(group: str, character: str) -> None:
    """The kernel allows 107 bytes. A group may have more characters, with several bytes each."""
    long = f"{character * 200}{group}"
    with claimed(long, "alpha"), claimed(long, "beta") as beta, claimed(f"{long}2", "alpha") as other:
        assert (beta, other) == ("beta", "alpha")
        with pytest.raises(SettingsError), claimed(long, "alpha"):
            pass
    with claimed(long, "") as first, claimed(long, "") as second:
        assert (first, second) == (HOST, f"{HOST}.1")


def test_the_name_of_a_killed_replica_is_free(group: str) -> None:
    code = (
        f"from worker.supervisor.identity import claimed\nwith claimed({group!r}, 'alpha'): print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        with pytest.raises(SettingsError), claimed(group, "alpha"):
            pass
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    with claimed(group, "alpha"):
        pass
