"""Names of replicas: each one's own on this machine, and free when its owner has ended."""

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


def test_the_name_that_was_wanted(group: str) -> None:
    with claimed(group, "alpha") as name:
        assert name == "alpha"


def test_a_name_has_one_owner(group: str) -> None:
    with (
        claimed(group, "alpha"),
        pytest.raises(SettingsError, match=f"WORKER_REPLICA='alpha'.*{group}"),
        claimed(group, "alpha"),
    ):
        pass


def test_a_name_is_free_when_its_owner_is_through(group: str) -> None:
    for _ in range(2):
        with claimed(group, "alpha"):
            pass
    with contextlib.suppress(ZeroDivisionError), claimed(group, "alpha"):
        raise ZeroDivisionError
    with claimed(group, "alpha") as name:
        assert name == "alpha"


def test_groups_and_names_are_their_own(group: str) -> None:
    with claimed(group, "alpha"), claimed(group, "beta") as beta, claimed(f"{group}x", "alpha") as alpha:
        assert (beta, alpha) == ("beta", "alpha")


def test_without_a_wish_it_is_the_host_and_a_number(group: str) -> None:
    with claimed(group, "") as first, claimed(group, "") as second:
        assert (first, second) == (HOST, f"{HOST}.1")
        with claimed(group, "") as third:
            assert third == f"{HOST}.2"
    with claimed(group, "") as again:
        assert again == HOST


@pytest.mark.parametrize("character", ["g", "\u00fc", "\u2603"])
def test_long_groups_have_names_too(group: str, character: str) -> None:
    """The kernel takes 107 bytes; a group may have more characters, and each of them several bytes."""
    long = f"{character * 200}{group}"
    with claimed(long, "alpha"), claimed(long, "beta") as beta, claimed(f"{long}2", "alpha") as other:
        assert (beta, other) == ("beta", "alpha")
        with pytest.raises(SettingsError), claimed(long, "alpha"):
            pass
    with claimed(long, "") as first, claimed(long, "") as second:
        assert (first, second) == (HOST, f"{HOST}.1")


def test_a_killed_owner_keeps_nothing(group: str) -> None:
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
