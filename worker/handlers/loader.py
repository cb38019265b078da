"""Finds the user's function and checks, before any task, that it can be called."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worker.errors import HandlerError

Result = str | bytes | dict[str, Any] | list[Any] | None
Handler = Callable[..., Result]
_NOT_PLAIN = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def load(reference: str, kwargs: dict[str, Any]) -> Handler:
    """Return the function that ``package.module:function`` names, checked against ``(request, context, **kwargs)``.

    Modules in the current directory are found too. Raise HandlerError with one line. If the user's module is at fault,
    the line names its file and line.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        message = f"WORKER_HANDLER={reference!r} is not of the form package.module:function"
        raise HandlerError(message)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    function = _find(_import(module_name, reference), attribute, reference)
    _check(function, kwargs, reference)
    return function


def _import(module_name: str, reference: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        message = f"WORKER_HANDLER={reference}: importing {module_name} failed: {_describe(error)}"
        raise HandlerError(message) from error


def _describe(error: BaseException) -> str:
    """Describe the error with its last line in the user's code, not in a library, the import system or the worker."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen importlib") and Path(frame.filename) not in _SKIPPED_FILES
    ]
    # The user's package may be installed among the libraries. Then the last line of those is used after all.
    frames = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    where = f" ({frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


_SKIPPED_FILES = (Path(__file__), Path(importlib.__file__ or ""))
_LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _find(module: Any, attribute: str, reference: str) -> Handler:
    target = module
    for name in attribute.split("."):
        if not hasattr(target, name):
            functions = sorted(n for n, v in vars(module).items() if inspect.isfunction(v) and not n.startswith("_"))
            message = f"WORKER_HANDLER={reference}: {module.__name__} has no {attribute!r}; it has {functions}"
            raise HandlerError(message)
        target = getattr(target, name)
    if not callable(target) or inspect.isclass(target):
        kind = "class" if inspect.isclass(target) else type(target).__name__
        message = f"WORKER_HANDLER={reference}: {attribute} is a {kind}, not a function"
        raise HandlerError(message)
    if any(kind(code) for kind in _NOT_PLAIN for code in (target, type(target).__call__)):
        message = f"WORKER_HANDLER={reference}: {attribute} must be a plain function, not a coroutine or generator"
        raise HandlerError(message)
    handler: Handler = target
    return handler


def _check(function: Handler, kwargs: dict[str, Any], reference: str) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return
    try:
        signature.bind(object(), object(), **kwargs)
    except TypeError as error:
        call = ", ".join(["request", "context", *(f"{name}=…" for name in kwargs)])
        message = f"WORKER_HANDLER={reference}: {function!r} cannot be called as ({call}): {error}"
        raise HandlerError(message) from error
