"""A container that runs the file system of an image as a container engine would, with util-linux alone. It has its own
process numbers, a read-only root, a new /dev, /tmp and /proc, and the user, environment and entry point of the image.

The network and the hostname are the machine's, and there is no memory or CPU limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Runs as PID 1 until the last line, which makes the container's own command PID 1.
_PREPARE = """
set -eu
root=$1 user=$2 directory=$3 code=$4
shift 4
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/tmp"
if [ -n "$code" ]; then
    mount --bind "$code" "$root/app"
    mount -o remount,bind,ro "$root/app"
fi
exec chroot --userspec="$user" --groups= "$root" /usr/bin/env --ignore-environment --chdir="$directory" "$@"
"""


@dataclass(frozen=True, slots=True)
class Image:
    """A mounted root file system and what `buildah inspect` says about it."""

    root: Path
    user: str
    directory: str
    environment: dict[str, str]
    entrypoint: list[str]
    command: list[str]
    healthcheck: list[str]

    @classmethod
    def read(cls, root: Path, inspection: str) -> Self:
        config = json.loads(inspection)["Docker"]["config"]
        return cls(
            root=root,
            user=config["User"],
            directory=config["WorkingDir"],
            environment=dict(item.split("=", 1) for item in config["Env"]),
            entrypoint=config["Entrypoint"],
            command=config["Cmd"],
            healthcheck=config["Healthcheck"]["Test"],
        )


class Container:
    """A running container. ``pid`` is its PID 1 as this machine numbers it."""

    def __init__(
        self,
        image: Image,
        command: Sequence[str],
        environment: Mapping[str, str],
        code: Path | None = None,
    ) -> None:
        self.image = image
        self.environment = {**image.environment, **environment}
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the container
        self._err = tempfile.TemporaryFile()  # noqa: SIM115
        self.started = time.time()
        # --kill-child: when this test ends for any reason, the kernel ends the container.
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child=KILL", "/bin/sh", "-c", _PREPARE, "sh"]
            + [str(image.root), image.user, image.directory, str(code or "")]
            + [f"{name}={value}" for name, value in self.environment.items()]
            + list(command),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
        )

    @property
    def pid(self) -> int:
        parent = self._process.pid
        deadline = time.monotonic() + 5
        while not (children := Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
            assert time.monotonic() < deadline, "the container did not start"
            time.sleep(0.005)
        return int(children[0])

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float) -> int:
        """Return the exit code of PID 1, as an engine would report it."""
        return self._process.wait(seconds)

    def running(self) -> bool:
        return self._process.poll() is None

    def enter(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as ``docker exec`` does."""
        user, group = self.image.user.split(":")
        where = ["--target", str(self.pid), "--mount", "--pid", "--ipc", "--root", "--wd"]
        return subprocess.run(
            [shutil.which("nsenter") or "nsenter", *where, "--setuid", user, "--setgid", group, "--", *command],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def states(self) -> dict[int, str]:
        """Return the state of every process inside, by its number on this machine. Z is a zombie."""
        inside = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            # Processes may end during this loop.
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "ns/pid").readlink() == inside:
                    found[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        return found

    def file(self, path: str) -> Path:
        """Return the path on this machine of a file inside."""
        return Path(f"/proc/{self.pid}/root") / path.lstrip("/")

    @property
    def stdout(self) -> str:
        return _content(self._out.fileno())

    @property
    def stderr(self) -> str:
        return _content(self._err.fileno())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._out.close()
        self._err.close()


@contextlib.contextmanager
def running(
    image: Image,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
    code: Path | None = None,
) -> Iterator[Container]:
    """Yield a running container. ``command`` replaces the whole command line of the image."""
    line = list(command) if command else [*image.entrypoint, *image.command]
    container = Container(image, line, environment or {}, code)
    try:
        yield container
    finally:
        container.close()


def _content(descriptor: int) -> str:
    """Return the content of a file that a child still writes, without moving the child's position in it."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()
