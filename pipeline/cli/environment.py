"""The options in the environment: ``PIPELINE_<OPTION>``, or the file that ``PIPELINE_<OPTION>_FILE`` names."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PREFIX = "PIPELINE_"
_FILE = "_FILE"
_ALIKE = 0.75  # similarity from which on a name is a misspelt option


def options(environ: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the text of each option (``max_replays``) that is set. SettingsError with a line per misspelt name."""
    found: dict[str, str] = {}
    problems: list[str] = []
    for variable, text in sorted(environ.items()):
        if not variable.startswith(PREFIX) or not text.strip():
            continue
        name, by_file = _target(variable.removeprefix(PREFIX).lower(), names)
        if name is None:
            problems += _misspelt(variable, names)
        elif name in found:
            problems.append(f"{PREFIX}{name.upper()} and {PREFIX}{name.upper()}{_FILE} are both set: leave one out")
        elif by_file:
            problems += _follow(found, name, variable, text)
        else:
            found[name] = text
    if problems:
        raise SettingsError("\n".join(problems))
    return found


def _target(name: str, names: Collection[str]) -> tuple[str | None, bool]:
    if name in names:
        return name, False
    stem = name.removesuffix(_FILE.lower())
    return (stem, True) if stem in names and stem != name else (None, False)


def _follow(found: dict[str, str], name: str, variable: str, path: str) -> list[str]:
    try:
        found[name] = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return [f"{variable} names a file that cannot be read: {reason}"]
    return []


def _misspelt(variable: str, names: Collection[str]) -> list[str]:
    """Return an error if the name resembles an option. Ignore others, such as those of Kubernetes Services."""
    near = difflib.get_close_matches(variable.removeprefix(PREFIX).lower(), names, n=1, cutoff=_ALIKE)
    return [f"{variable} is not known: is {PREFIX}{near[0].upper()} meant? Correct it, or unset it"] if near else []
