"""A PostgreSQL of the tests' own: a private cluster in a temporary folder, on a free port of this machine."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WAIT_SECONDS = 30
SETTINGS = ("shared_buffers=16MB", "max_connections=60")  # fsync stays on: its cost is part of what is measured


class Postgres:
    """A server that can be stopped, frozen and started again. Each test gets a schema of its own."""

    def __init__(self, programs: Path, folder: Path, user: str | None) -> None:
        self.port = free_port()
        self._programs, self._data, self._user = programs, folder / "data", user
        # On localhost by password, so that the tests go the way that users go.
        password = folder / "password"
        password.write_text("secret")
        if user:
            entry = pwd.getpwnam(user)
            for path in (folder, password):
                os.chown(path, entry.pw_uid, entry.pw_gid)
        self._run("initdb", "-U", "tests", "--auth=scram-sha-256", f"--pwfile={password}", "--no-sync", "-E", "UTF8")
        settings = "\n".join(
            [*SETTINGS, f"port={self.port}", "listen_addresses='127.0.0.1'", "unix_socket_directories=''"]
        )
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(settings + "\n")

    def start(self) -> None:
        self._run("pg_ctl", "-w", "-t", str(WAIT_SECONDS), "-l", str(self._data / "log"), "start")

    def stop(self) -> None:
        """As a crash: clients are cut off."""
        self._run("pg_ctl", "-w", "-t", str(WAIT_SECONDS), "-m", "immediate", "stop")

    def running(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def processes(self) -> list[int]:
        """The server's first process and all that it started."""
        first = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        return [first.pid, *(child.pid for child in first.children(recursive=True))]

    def url(self, database: str, password: str = "secret") -> str:
        return f"postgresql://tests:{password}@127.0.0.1:{self.port}/{database}"

    def fresh(self) -> str:
        """The URL of a new, empty schema: a database of its own would be 7 MB of files."""
        name = f"s{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url("postgres")) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self.url('postgres')}?options=-csearch_path%3D{name}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), "-D", str(self._data), *arguments]
        done = subprocess.run(
            command,
            user=self._user,
            group=self._user and pwd.getpwnam(self._user).pw_gid,
            extra_groups=[] if self._user else None,
            cwd="/",  # one that the other user may enter
            env={**os.environ, "LC_ALL": "C"},
            # pg_ctl's server keeps what it inherits: a pipe would never end.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            text=True,
            check=False,
        )
        if done.returncode:
            log = self._data / "log"
            said = done.stderr or (log.read_text()[-2000:] if log.exists() else "")
            message = f"{program} {' '.join(arguments)} failed: {said}"
            raise RuntimeError(message)


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server that answers, gone without a trace at the end."""
    programs = _programs()
    # The server refuses to be root.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = Postgres(programs, Path(folder), user)
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(RuntimeError):  # a test may have stopped it
                server.stop()


def _programs() -> Path:
    found = _look()
    if found is None and os.geteuid() == 0:
        _install(["apt-get", "install", "-y", "--no-install-recommends", "postgresql"])
        found = _look()
        if found is None:
            pytest.fail("tests of the offset store need PostgreSQL: apt-get install postgresql", pytrace=False)
    if found is None:
        pytest.skip("no PostgreSQL here and no right to install it: apt-get install postgresql")
    return found


def _look() -> Path | None:
    """The folder with the newest server's programs; Debian does not put it on the path."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    on_path = shutil.which("initdb")
    candidates = [*reversed(folders), *([Path(on_path).parent] if on_path else [])]
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


def _install(command: Sequence[str]) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with contextlib.suppress(OSError):  # no Debian
        if subprocess.run(command, env=quiet, capture_output=True, check=False).returncode:
            subprocess.run(["apt-get", "update"], env=quiet, capture_output=True, check=False)
            subprocess.run(command, env=quiet, capture_output=True, check=False)
