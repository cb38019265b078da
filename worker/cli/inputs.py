"""What ``worker submit`` sends: arguments or a file, checked as a whole before the first request goes out."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Self

from worker.cli.rows import InputError, Row, csv_rows, encoded, json_rows, numbered
from worker.codec import encode_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.core.model import Headers

INT32 = range(-(2**31), 2**31)


class Item(NamedTuple):
    """One request as it is sent."""

    sequence: int
    key: bytes
    value: bytes
    headers: Headers


class Source:
    """Rows that can be gone through twice: once to check them all, once to send them. Closes their file."""

    def __init__(
        self, rows: Callable[[], Iterator[Row]], start: int, job: str | None, file: IO[bytes] | None = None
    ) -> None:
        self._rows = rows
        self._start = start
        self._job = job
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._file is not None:
            self._file.close()

    def items(self) -> Iterator[Item]:
        """The requests. A row without a sequence gets ``start`` plus its position; InputError at the first fault."""
        for number, row in enumerate(self._rows(), start=self._start):
            yield _item(row, number if row.sequence is None else row.sequence, self._job)


def from_arguments(payloads: tuple[str, ...], start: int, job: str | None) -> Source:
    """One request per argument."""
    rows = [Row(f"argument {number}", payload) for number, payload in enumerate(payloads, start=1)]
    return Source(lambda: iter(rows), start, job)


def from_file(name: str, start: int, job: str | None) -> Source:
    """CSV if the name ends so, else JSON lines; ``-`` is JSON lines from standard input."""
    read = csv_rows if name.lower().endswith(".csv") else json_rows
    file = _rewindable(name)

    def rows() -> Iterator[Row]:
        file.seek(0)
        return read(numbered(file, "standard input" if name == "-" else name))

    return Source(rows, start, job, file)


def _rewindable(name: str) -> IO[bytes]:
    """The file itself; a copy of what comes from a pipe, which can be read only once."""
    try:
        file = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115 - the source closes it
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from error
    if name != "-" and file.seekable():
        return file
    with file:
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the source closes it
        shutil.copyfileobj(file, copy)
    return copy


def _item(row: Row, sequence: int, job: str | None) -> Item:
    if sequence not in INT32:
        raise InputError(f"{row.where}: sequence {sequence} is outside of int32")
    encoded(row.where, row.payload)
    value = encode_request(sequence, row.payload)
    if not value:
        raise InputError(f"{row.where}: an empty payload with sequence 0 is an empty record, which is no request")
    key = row.key if row.key is not None else f"{job}/{sequence:010d}" if job else str(sequence)
    return Item(sequence, encoded(row.where, key), value, row.headers)
