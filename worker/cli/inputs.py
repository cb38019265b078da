"""The input of ``worker submit``: arguments or a file, checked completely before the first request is sent."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Self

from worker.cli.rows import InputError, Row, csv_rows, encoded, json_rows, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.core.model import Headers

    Encode = Callable[[int, str], bytes]  # of a request, by sequence and payload

INT32 = range(-(2**31), 2**31)


class Item(NamedTuple):
    """One request, ready to send."""

    sequence: int
    key: bytes
    value: bytes
    headers: Headers


class Source:
    """Rows that can be read twice: once to check them all, and once to send them. It closes the file."""

    def __init__(
        self,
        rows: Callable[[], Iterator[Row]],
        start: int,
        job: str | None,
        encode: Encode,
        file: IO[bytes] | None = None,
    ) -> None:
        self._rows = rows
        self._start = start
        self._job = job
        self._encode = encode
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._file is not None:
            self._file.close()

    def items(self) -> Iterator[Item]:
        """Yield the requests. A row without a sequence gets ``start`` plus its position. Raise InputError if one is
        invalid.
        """
        for number, row in enumerate(self._rows(), start=self._start):
            yield _item(row, number if row.sequence is None else row.sequence, self._job, self._encode)


def from_arguments(payloads: tuple[str, ...], start: int, job: str | None, encode: Encode) -> Source:
    """Return one request per argument."""
    rows = [Row(f"argument {number}", payload) for number, payload in enumerate(payloads, start=1)]
    return Source(lambda: iter(rows), start, job, encode)


def from_file(name: str, start: int, job: str | None, encode: Encode) -> Source:
    """Read CSV if the name ends in ``.csv``, otherwise JSON lines; ``-`` is JSON lines from standard input."""
    read = csv_rows if name.lower().endswith(".csv") else json_rows
    file = _rewindable(name)

    def rows() -> Iterator[Row]:
        file.seek(0)
        return read(numbered(file, "standard input" if name == "-" else name))

    return Source(rows, start, job, encode, file)


def _rewindable(name: str) -> IO[bytes]:
    """Return the file itself, or a copy of a pipe, which can be read only once."""
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


def _item(row: Row, sequence: int, job: str | None, encode: Encode) -> Item:
    if sequence not in INT32:
        raise InputError(f"{row.where}: sequence {sequence} is outside of int32")
    encoded(row.where, row.payload)
    value = encode(sequence, row.payload)
    if not value:
        raise InputError(f"{row.where}: an empty payload needs a sequence other than 0, or the record would be empty")
    key = row.key if row.key is not None else f"{job}/{sequence:010d}" if job else str(sequence)
    return Item(sequence, encoded(row.where, key), value, row.headers)
