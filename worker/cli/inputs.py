"""What ``worker submit`` sends: arguments, JSON lines or CSV, checked row by row, each fault with its file and line."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import click

from worker.codec import encode_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from worker.core.model import Headers

FIELDS = {"payload", "sequence", "key", "headers"}
COLUMNS = {"payload", "sequence", "key"}
INT32 = range(-(2**31), 2**31)


class InputError(click.ClickException):
    """A row that cannot be sent; the message names its file and line."""

    exit_code = 2


class Row(NamedTuple):
    """One request as it was written; what was left out is None. ``where`` names its place."""

    where: str
    payload: str
    sequence: int | None = None
    key: str | None = None
    headers: Headers = ()


class Item(NamedTuple):
    """One request as it is sent."""

    sequence: int
    key: bytes
    value: bytes
    headers: Headers


class Source:
    """Rows that can be gone through twice: once to check them all, once to send them."""

    def __init__(
        self, rows: Callable[[], Iterator[Row]], start: int, job: str | None, spool: IO[bytes] | None = None
    ) -> None:
        self._rows = rows
        self._start = start
        self._job = job
        self._spool = spool

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._spool is not None:
            self._spool.close()

    def items(self) -> Iterator[Item]:
        """The requests. A row without a sequence gets ``start`` plus its position; InputError at the first fault."""
        for number, row in enumerate(self._rows(), start=self._start):
            yield _item(row, number if row.sequence is None else row.sequence, self._job)


def from_arguments(payloads: tuple[str, ...], start: int, job: str | None) -> Source:
    """One request per argument."""
    rows = [Row(f"argument {number}", payload) for number, payload in enumerate(payloads, start=1)]
    return Source(lambda: iter(rows), start, job)


def from_file(name: str, start: int, job: str | None) -> Source:
    """A CSV file if its name ends so, else JSON lines; ``-`` is JSON lines from standard input, kept in a file."""
    read = csv_rows if name.lower().endswith(".csv") else json_rows
    if name == "-":
        spool = tempfile.TemporaryFile()  # noqa: SIM115 - the source closes it
        shutil.copyfileobj(sys.stdin.buffer, spool)
        return Source(lambda: read(_lines(_rewound(spool), "standard input")), start, job, spool)

    def rows() -> Iterator[Row]:
        try:
            with Path(name).open("rb") as file:
                yield from read(_lines(file, name))
        except OSError as error:
            raise InputError(f"{name}: {error.strerror}") from error

    return Source(rows, start, job)


def _rewound(file: IO[bytes]) -> IO[bytes]:
    file.seek(0)
    return file


def _lines(file: Iterable[bytes], name: str) -> Iterator[tuple[str, str]]:
    """Each line as text, with its place."""
    for number, line in enumerate(file, start=1):
        where = f"{name}, line {number}"
        try:
            yield where, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: not UTF-8: {error.reason} at byte {error.start + 1}") from error


# ---------------------------------------------------------------- JSON lines


def json_rows(lines: Iterable[tuple[str, str]]) -> Iterator[Row]:
    """A string is a payload; an object has ``payload`` and may have ``sequence``, ``key`` and ``headers``."""
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
            raise InputError(f"{where}: expected an object with a payload, or a string, not {line.strip()[:40]}")


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
    return tuple((name, _encoded(where, text)) for name, text in value.items())


# ---------------------------------------------------------------- CSV


def csv_rows(lines: Iterable[tuple[str, str]]) -> Iterator[Row]:
    """The first line names the columns: ``payload`` and, where wanted, ``sequence`` and ``key``."""
    place = ["empty file"]  # of the line read last: the last one of its row

    def texts() -> Iterator[str]:
        for where, line in lines:
            place[0] = where
            yield line

    csv.field_size_limit(2**31 - 1)  # the default, 128 kB, is less than a record may hold
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
        raise InputError(f"{where}: expected as many cells as the first line has columns")
    sequence = cells.get("sequence") or None
    try:
        return Row(where, cells["payload"], None if sequence is None else int(sequence), cells.get("key") or None)
    except ValueError as error:
        raise InputError(f"{where}: sequence must be a whole number, not {sequence!r}") from error


# ---------------------------------------------------------------- all of them


def _check_names(where: str, found: set[str], allowed: set[str]) -> None:
    if "payload" not in found:
        raise InputError(f"{where}: there is no payload, only {', '.join(sorted(found)) or 'nothing'}")
    if not found <= allowed:
        unknown, known = ", ".join(sorted(found - allowed)), ", ".join(sorted(allowed))
        raise InputError(f"{where}: unknown: {unknown}; there are {known}")


def _encoded(where: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # JSON can write half of a surrogate pair
        raise InputError(f"{where}: {text!r} cannot be written as UTF-8") from error


def _item(row: Row, sequence: int, job: str | None) -> Item:
    if sequence not in INT32:
        raise InputError(f"{row.where}: sequence {sequence} is outside of int32")
    _encoded(row.where, row.payload)
    value = encode_request(sequence, row.payload)
    if not value:
        raise InputError(f"{row.where}: an empty payload with sequence 0 is an empty record, which is no request")
    key = row.key if row.key is not None else f"{job}/{sequence:010d}" if job else str(sequence)
    return Item(sequence, _encoded(row.where, key), value, row.headers)
