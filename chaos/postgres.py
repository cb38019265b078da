"""A private PostgreSQL server in a temporary folder, on a free port of this machine."""

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

from chaos.procutil import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WAIT_SECONDS = 30
SETTINGS = ("shared_buffers=16MB", "max_connections=60")  # fsync stays on: users run with it


class PostgresMissingError(Exception):
    """PostgreSQL is not installed."""


class Postgres:
    """A server that can be stopped, frozen and restarted. Each of its users gets a new schema."""

    def __init__(self, programs: Path, folder: Path, user: str | None, port: int) -> None:
        self.port = port
        self._programs, self._data, self._user = programs, folder / "data", user
        # Over localhost with a password, as users connect.
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
        """Stop it as in a crash, without waiting for its clients."""
        self._run("pg_ctl", "-w", "-t", str(WAIT_SECONDS), "-m", "immediate", "stop")

    def running(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def processes(self) -> list[int]:
        """Return the server's first process and all its descendants."""
        first = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        return [first.pid, *(child.pid for child in first.children(recursive=True))]

    def url(self, database: str, password: str = "secret") -> str:  # noqa: S107 - a private server on the loopback
        return f"postgresql://tests:{password}@127.0.0.1:{self.port}/{database}"

    def fresh(self) -> str:
        """Return the URL of a new, empty schema. A new database would cost 7 MB of files."""
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
            cwd="/",  # a folder that the other user may enter
            env={**os.environ, "LC_ALL": "C"},
            # The server inherits these files and keeps them open: a pipe would never reach its end.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            text=True,
            check=False,
        )
        if done.returncode:
            log = self._data / "log"
            output = done.stderr or (log.read_text()[-2000:] if log.exists() else "")
            raise RuntimeError(f"{program} {' '.join(arguments)} failed: {output}")


@contextlib.contextmanager
def running_postgres(port: int | None = None) -> Iterator[Postgres]:
    """Start a server, yield it once it answers, and remove it at the end. PostgresMissingError if not installed."""
    programs = _programs()
    # The server refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = Postgres(programs, Path(folder), user, port or free_ports(1)[0])
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(RuntimeError):  # it may be stopped already
                server.stop()


def _programs() -> Path:
    found = _look()
    if found is None and os.geteuid() == 0:
        _install(["apt-get", "install", "-y", "--no-install-recommends", "postgresql"])
        found = _look()
    if found is None:
        raise PostgresMissingError("PostgreSQL is not installed: apt-get install postgresql")
    return found


def _look() -> Path | None:
    """Return the folder with the newest server's programs. Debian does not put it on the path."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    on_path = shutil.which("initdb")
    candidates = [*reversed(folders), *([Path(on_path).parent] if on_path else [])]
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


def _install(command: Sequence[str]) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with contextlib.suppress(OSError):  # not Debian
        if subprocess.run(command, env=quiet, capture_output=True, check=False).returncode:
            subprocess.run([command[0], "update"], env=quiet, capture_output=True, check=False)
            subprocess.run(command, env=quiet, capture_output=True, check=False)
