"""Finds the user's offset store and checks, before any task, that it is valid."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from worker.stores.port import OffsetStore, StoreError

_VARIABLE = "WORKER_OFFSET_STORE"
_METHODS = ("positions", "begin", "skip", "answers", "close")
_SHIPPED = "worker.stores.sql"
_NEEDS = frozenset({"sqlalchemy", "psycopg"})


def load(reference: str, group: str) -> OffsetStore:
    """Return the store that ``package.module:factory`` creates for this consumer group.

    Called in the worker process, before it has threads. Modules in the current directory are found too. Raise
    StoreError with one line. A StoreError that the factory raises is passed on, including StoreUnavailableError.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise StoreError(f"{_VARIABLE}={reference!r} is not of the form package.module:factory")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    store = _make(_find(_import(module_name, reference), attribute, reference), reference, group)
    _check(store, reference)
    return store  # type: ignore[no-any-return]  # checked by its methods, since users need not inherit from anything


def _import(module_name: str, reference: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and module_name == _SHIPPED and error.name in _NEEDS:
            message = f"needs {error.name}: pip install 'kafka-task-worker[store]'"
        else:
            message = f"importing {module_name} failed: {_describe(error)}"
        raise StoreError(f"{_VARIABLE}={reference}: {message}") from error


def _find(module: Any, attribute: str, reference: str) -> Any:
    target = module
    for name in attribute.split("."):
        if not hasattr(target, name):
            raise StoreError(f"{_VARIABLE}={reference}: {module.__name__} has no {attribute!r}")
        target = getattr(target, name)
    if not callable(target):
        raise StoreError(f"{_VARIABLE}={reference}: {attribute} is a {type(target).__name__}, not a function or class")
    return target


def _make(factory: Any, reference: str, group: str) -> Any:
    try:
        return factory(group)
    except (StoreError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise StoreError(f"{_VARIABLE}={reference}: creating the store failed: {_describe(error)}") from error


def _check(store: Any, reference: str) -> None:
    missing = [name for name in _METHODS if not callable(getattr(store, name, None))]
    if missing:
        kind = type(store).__name__
        raise StoreError(f"{_VARIABLE}={reference}: it returned a {kind}, which has no {', '.join(missing)}")


def _describe(error: BaseException) -> str:
    """Describe the error in one line, with its location unless that is the import machinery or this file."""
    text = " ".join(str(error).split())
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen importlib")
        and Path(frame.filename) not in (Path(__file__), Path(importlib.__file__ or ""))
    ]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{where}"
