"""The input of ``worker submit``, and the messages about wrong input."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

from worker.cli.inputs import Item, from_arguments, from_file
from worker.cli.rows import InputError
from worker.codec import decode_request, encode_request

if TYPE_CHECKING:
    from pathlib import Path


def items(tmp_path: Path, name: str, content: str | bytes) -> list[Item]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with from_file(str(path), 1, None, encode_request) as source:
        return list(source.items())


def payloads(found: list[Item]) -> list[tuple[int, str]]:
    return [(item.sequence, decode_request(item.value).payload) for item in found]


def fault(tmp_path: Path, name: str, content: str | bytes) -> str:
    """Return the message of the error, without the folder."""
    with pytest.raises(InputError) as caught:
        items(tmp_path, name, content)
    return caught.value.message.replace(f"{tmp_path}/", "")


def test_arguments_are_numbered_from_start() -> None:
    """Each argument is one request; its key is its sequence as text."""
    found = list(from_arguments(("a", "b"), start=7, job=None, encode=encode_request).items())

    assert payloads(found) == [(7, "a"), (8, "b")]
    assert [item.key for item in found] == [b"7", b"8"]


def test_keys_begin_with_the_name_of_the_job() -> None:
    """They sort like the sequences."""
    (item,) = from_arguments(("a",), start=42, job="nightly", encode=encode_request).items()

    assert item.key == b"nightly/0000000042"


def test_json_lines_are_strings_or_objects(tmp_path: Path) -> None:
    """A string is a payload. An object has more fields. Other payloads are sent as JSON. Blank lines are skipped."""
    text = (
        '"plain"\n\n{"payload": {"a": [1, "é"]}, "sequence": 9, "key": "k", "headers": {"h": "v"}}\n{"payload": ""}\n'
    )

    plain, rich, empty = items(tmp_path, "x.jsonl", text)

    assert payloads([plain, rich, empty]) == [(1, "plain"), (9, '{"a":[1,"é"]}'), (3, "")]
    assert (rich.key, rich.headers) == (b"k", (("h", b"v"),))
    assert (plain.key, plain.headers) == (b"1", ())


def test_csv_has_named_columns(tmp_path: Path) -> None:
    """Quoted cells keep commas and line ends. Empty optional cells and a byte-order mark are ignored."""
    text = '\ufeffkey,payload,sequence\r\nk1,"a, ""b""\nc",5\r\n,d,\r\n'

    found = items(tmp_path, "X.CSV", text)

    assert payloads(found) == [(5, 'a, "b"\nc'), (2, "d")]
    assert [item.key for item in found] == [b"k1", b"2"]


def test_csv_cells_may_be_large(tmp_path: Path) -> None:
    """Payloads are not limited by the CSV library's default of 128 kB."""
    (item,) = items(tmp_path, "x.csv", f"payload\n{'a' * 200_000}\n")

    assert len(decode_request(item.value).payload) == 200_000


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[" * 100_000, "not JSON"),
        ("17", "must be a string or an object with a payload, not 17"),
        ("{}", "payload is missing; the fields are none"),
        ('{"sequence": 1}', "payload is missing; the fields are sequence"),
        (
            '{"payload": "a", "sequenz": 1}',
            "unknown field: sequenz; the known ones are headers, key, payload, sequence",
        ),
        ('{"payload": "a", "sequence": "1"}', "sequence must be a whole number, not '1'"),
        ('{"payload": "a", "sequence": true}', "sequence must be a whole number, not True"),
        ('{"payload": "a", "sequence": 2147483648}', "sequence 2147483648 is outside of int32"),
        ('{"payload": "a", "key": 1}', "key must be a string, not 1"),
        ('{"payload": "a", "headers": ["h"]}', "headers must be an object of strings"),
        ('{"payload": "a", "headers": {"h": 1}}', "headers must be an object of strings"),
        ('{"payload": "\\ud800"}', "cannot be written as UTF-8"),
        ('{"payload": "", "sequence": 0}', "an empty payload needs a sequence other than 0"),
    ],
)
def test_the_error_names_a_wrong_line(tmp_path: Path, line: str, complaint: str) -> None:
    """The message has the file, the line number and the reason."""
    message = fault(tmp_path, "x.jsonl", f'"good"\n{line}\n')

    assert message.startswith("x.jsonl, line 2: ")
    assert complaint in message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty file: payload is missing; the fields are none"),
        ("pay,load\n", "x.csv, line 1: payload is missing; the fields are load, pay"),
        ("payload,job\n", "x.csv, line 1: unknown field: job; the known ones are key, payload, sequence"),
        ("payload,key\na\n", "x.csv, line 2: the line must have as many cells"),
        ("payload\na,b\n", "x.csv, line 2: the line must have as many cells"),
        ("payload,sequence\na,1\nb,x\n", "x.csv, line 3: sequence must be a whole number, not 'x'"),
        ('payload\n"a\n', "x.csv, line 2: not CSV"),
    ],
)
def test_the_error_names_a_wrong_row(tmp_path: Path, text: str, complaint: str) -> None:
    """The messages about CSV have the file and the line number, too."""
    assert complaint in fault(tmp_path, "x.csv", text)


def test_the_error_names_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    """The message has the line number and the position in the line."""
    assert fault(tmp_path, "x.jsonl", b'"a"\n"\xff"\n') == "x.jsonl, line 2: not UTF-8: invalid start byte at byte 2"


def test_the_error_names_a_missing_file(tmp_path: Path) -> None:
    """The error is an ``InputError``, so the user sees no traceback."""
    with pytest.raises(InputError, match=r"nosuch.jsonl: No such file or directory"):
        from_file(str(tmp_path / "nosuch.jsonl"), 1, None, encode_request)


def test_standard_input_can_be_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Input from a pipe is kept, so that it can be checked before it is sent."""
    path = tmp_path / "in"
    path.write_text("\n".join(json.dumps(f"p{n}") for n in range(3)))
    with path.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        source = from_file("-", 1, None, encode_request)

    with source:
        first, second = list(source.items()), list(source.items())

    assert payloads(first) == [(1, "p0"), (2, "p1"), (3, "p2")]
    assert second == first


def test_a_named_pipe_can_be_read_twice(tmp_path: Path) -> None:
    """An example is ``--file <(generate)``. The input is kept after the first read."""
    pipe = tmp_path / "x.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("payload\na\n",))
    writer.start()

    with from_file(str(pipe), 1, None, encode_request) as source:
        first, second = list(source.items()), list(source.items())

    writer.join()
    assert payloads(first) == [(1, "a")]
    assert second == first
