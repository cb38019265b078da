"""Reads JSON lines and CSV for ``worker submit``, row by row. Errors name the file and the line."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from worker.core.model import Headers

FIELDS = {"payload", "sequence", "key", "headers"}
COLUMNS = {"payload", "sequence", "key"}


class InputError(click.ClickException):
    """The row cannot be sent. The message names its file and line."""

    exit_code = 2


class Row(NamedTuple):
    """One request from the input; missing fields are None. ``where`` is its file and line."""

    where: str
    payload: str
    sequence: int | None = None
    key: str | None = None
    headers: Headers = ()


def numbered(file: Iterable[bytes], name: str) -> Iterator[tuple[str, str]]:
    """Yield each line as text, with its file and line number."""
    for number, line in enumerate(file, start=1):
        where = f"{name}, line {number}"
        try:
            yield where, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: not UTF-8: {error.reason} at byte {error.start + 1}") from error


# ---------------------------------------------------------------- JSON lines


def json_rows(lines: Iterable[tuple[str, str]]) -> Iterator[Row]:
    """Parse JSON lines. A string is a payload; an object has ``payload`` and perhaps ``sequence``, ``key``,
    ``headers``.
    """
    for where, line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON: {error}") from error
        if isinstance(value, str):
            yield Row(where, value)
        elif isinstance(value, dict):
            yield _from_object(where, value)
        else:
            raise InputError(f"{where}: must be a string or an object with a payload, not {line.strip()[:40]}")


def _from_object(where: str, value: dict[str, Any]) -> Row:
    _check_names(where, set(value), FIELDS)
    payload, key, sequence = value["payload"], value.get("key"), value.get("sequence")
    if not isinstance(payload, str):
        payload = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    if not isinstance(sequence, int | None) or isinstance(sequence, bool):
        raise InputError(f"{where}: sequence must be a whole number, not {sequence!r}")
    if not isinstance(key, str | None):
        raise InputError(f"{where}: key must be a string, not {key!r}")
    return Row(where, payload, sequence, key, _headers(where, value.get("headers") or {}))


def _headers(where: str, value: object) -> Headers:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InputError(f"{where}: headers must be an object of strings, not {value!r}")
    for name in value:
        if b"\0" in encoded(where, name):
            raise InputError(f"{where}: the name of a header must not contain NUL: {name!r}")
    return tuple((name, encoded(where, text)) for name, text in value.items())


# ---------------------------------------------------------------- CSV


def csv_rows(lines: Iterable[tuple[str, str]]) -> Iterator[Row]:
    """Parse CSV. The first line names the columns: ``payload`` and optionally ``sequence`` and ``key``."""
    place = ["empty file"]  # the last line read, which is the last line of its row

    def texts() -> Iterator[str]:
        for where, line in lines:
            place[0] = where
            yield line

    csv.field_size_limit(2**31 - 1)  # the default, 128 kB, is less than the size of a record
    reader = csv.DictReader(texts(), strict=True)
    try:
        names = set(reader.fieldnames or ())
        _check_names(place[0], names, COLUMNS)
        for cells in reader:
            yield _from_cells(place[0], cells)
    except csv.Error as error:
        raise InputError(f"{place[0]}: not CSV: {error}") from error


def _from_cells(where: str, cells: dict[str, Any]) -> Row:
    if None in cells or None in cells.values():
        raise InputError(f"{where}: the line must have as many cells as the first line has columns")
    sequence = cells.get("sequence") or None
    try:
        return Row(where, cells["payload"], None if sequence is None else int(sequence), cells.get("key") or None)
    except ValueError as error:
        raise InputError(f"{where}: sequence must be a whole number, not {sequence!r}") from error


# ---------------------------------------------------------------- both


def _check_names(where: str, found: set[str], allowed: set[str]) -> None:
    if "payload" not in found:
        raise InputError(f"{where}: payload is missing; the fields are {', '.join(sorted(found)) or 'none'}")
    if not found <= allowed:
        unknown, known = ", ".join(sorted(found - allowed)), ", ".join(sorted(allowed))
        raise InputError(f"{where}: unknown field: {unknown}; the known ones are {known}")


def encoded(where: str, text: str) -> bytes:
    """Return the text as UTF-8. Raise InputError if that is not possible."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair
        raise InputError(f"{where}: {text!r} cannot be written as UTF-8") from error
