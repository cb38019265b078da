"""The control groups of this process (cgroup version 1 or 2), inside or outside a container."""

from __future__ import annotations

import math
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")
RECENT_SECONDS = 30.0
UNLIMITED = 1 << 62  # version 1 writes a number near 2^63 where there is no limit


def folders(controller: str, membership: Path = MEMBERSHIP, root: Path = ROOT) -> list[Path]:
    """Return the folders of this process under ``root``: its own group first, then the groups above it.

    ``controller`` names a version 1 controller; "" means version 2. Folders that do not exist are left out: in a
    container the path is often the host's, while ``root`` shows only the container's group. The list is empty if that
    version is not in use.
    """
    path = _path(controller, membership)
    mounts = [root / controller] if controller else [root / "unified", root]
    mount = next((mount for mount in mounts if _is_folder(mount)), None)
    if path is None or mount is None:
        return []
    inside = Path(*(part for part in Path(path).parts if part not in ("/", "..")))
    return [mount / folder for folder in (inside, *inside.parents) if _is_folder(mount / folder)]


def oom_kills(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int:
    """Return how many processes of this container the kernel has killed for lack of memory; 0 if unknown."""
    files = [folder / "memory.events" for folder in folders("", membership, root)]
    files += [folder / "memory.oom_control" for folder in folders("memory", membership, root)]
    for file in files:
        for line in read(file).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


class OomKills:
    """Tells which ended process the kernel has killed for lack of memory. Other processes of the container count too.

    A killed process may take seconds to end. After ``RECENT_SECONDS`` a kill belongs to none that ends later.
    """

    def __init__(self) -> None:
        self._count = oom_kills()
        self._seen_at = -math.inf

    def look(self, now: float) -> None:
        """Count new kills. Call it on every turn, and before ``take``."""
        count = oom_kills()
        if count > self._count:
            self._count, self._seen_at = count, now

    def take(self, now: float) -> bool:
        """Return whether there was a recent kill, which then belongs to the process that has ended."""
        recent = now - self._seen_at < RECENT_SECONDS
        self._seen_at = -math.inf
        return recent


def memory_limit(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int | None:
    """Return the bytes that this container may use: the lowest limit of its group and those above; None without one."""
    files = [folder / "memory.max" for folder in folders("", membership, root)]
    files += [folder / "memory.limit_in_bytes" for folder in folders("memory", membership, root)]
    limits = [int(text) for file in files if (text := read(file)).isdigit()]
    return min([limit for limit in limits if limit < UNLIMITED], default=None)


def kills_together(membership: Path = MEMBERSHIP, root: Path = ROOT) -> bool:
    """Return whether the kernel kills all processes of this container when its memory runs out."""
    return any(read(folder / "memory.oom.group") == "1" for folder in folders("", membership, root))


def read(file: Path) -> str:
    """Return the text of a file, stripped; empty if it does not exist or cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _path(controller: str, membership: Path) -> str | None:
    """Return the path in the controller's line, which is ``number:controllers:path``."""
    for line in read(membership).splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    return None


def _is_folder(path: Path) -> bool:
    """Return whether this is a folder; False if access to it is denied."""
    try:
        return path.is_dir()
    except OSError:
        return False
