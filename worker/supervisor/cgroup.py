"""What the kernel's control groups say of this process, version 1 or 2, inside a container or not."""

from __future__ import annotations

from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")


def folders(controller: str, membership: Path = MEMBERSHIP, root: Path = ROOT) -> list[Path]:
    """The process's folders under ``root`` for a version 1 ``controller``, "" for version 2: its own, then those above.

    Folders that cannot be seen are left out: in a container the path is often the host's, while ``root`` shows the
    container's own group only, which is then the only one in the list. Empty where that version is not in use.
    """
    path = _path(controller, membership)
    bases = [root / controller] if controller else [root / "unified", root]
    base = next((base for base in bases if base.is_dir()), None)
    if path is None or base is None:
        return []
    inside = Path(*(part for part in Path(path).parts if part not in ("/", "..")))
    return [base / folder for folder in (inside, *inside.parents) if (base / folder).is_dir()]


def oom_kills(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int:
    """How many processes of this container the kernel has killed for want of memory; 0 where it does not tell."""
    files = [folder / "memory.events" for folder in folders("", membership, root)]
    files += [folder / "memory.oom_control" for folder in folders("memory", membership, root)]
    for file in files:
        for line in read(file).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def read(file: Path) -> str:
    """A file's text without space around it; empty if it is not there or may not be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _path(controller: str, membership: Path) -> str | None:
    """The group's path in the line ``number:controllers:path`` that is the controller's."""
    for line in read(membership).splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    return None
