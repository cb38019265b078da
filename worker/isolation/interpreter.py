"""The command line that starts a new interpreter like this one."""

from __future__ import annotations

import json
import subprocess
import sys

# Set ``sys.path`` as it is here, then call ``main`` of the given module.
_CODE = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main(*sys.argv[3:])"
)


def command(module: str, *arguments: object) -> list[str]:
    """Return the command line of an interpreter that calls ``main`` of a module with string arguments."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001
    return [sys.executable, *flags, "-c", _CODE, json.dumps(sys.path), module, *map(str, arguments)]
