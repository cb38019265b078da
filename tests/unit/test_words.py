"""Retired words stay out of the code and the documentation: docs/glossary.md has the words to use.

A directory is added to ``CLEAN`` once it is free of them, and stays in it.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CLEAN = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "mkdocs.yml"),
    *("worker", "pipeline", "chaos", "benchmarks", "config", "examples", "tests"),
]
"""Files and directories that are checked."""

UNCHECKED = {"tests/unit/test_words.py"}
"""Files inside ``CLEAN`` that have to name the retired words: this one."""

RETIRED = {
    "anew": "again",
    "bury": "dead-letter",
    "buried": "dead-lettered",
    "complain": "print an error, warn",
    "courier": "transaction thread",
    "crowded": "metadata full",
    "doubt": "crash suspect",
    "doubtful": "crash suspect",
    "eavesdropper": "log watcher",
    "errand": "transaction",
    "expelled": "fenced",
    "for ever": "forever, without limit",
    "grudge": "fenced",
    "hand over": "dispatch",
    "handed over": "dispatched, in flight",
    "hungry": "starved",
    "lane": "partition state",
    "lanes": "partition states",
    "lest": "so that … not",
    "let go": "drop",
    "mischief": "fault",
    "of its own": "its own …",
    "of their own": "their own …",
    "permit": "start limit",
    "permits": "start limits",
    "pressed": "out of order",
    "put back": "requeue",
    "recall": "withdraw",
    "scattered": "out of order",
    "sibling": "peer process",
    "siblings": "peer processes",
    "so many": "that many",
    "stalled": "blocked",
    "strand": "ordering group",
    "strands": "ordering groups",
    "stranger": "orphan",
    "strangers": "orphans",
    "what is its own": "its own tasks",
    "whosoever": "who, which",
}
"""Not in prose, and not in the name of anything. With what to say instead."""

RETIRED_NAMES = {
    "acts": "faults",
    "ask": "request",
    "asked": "requested",
    "base": "committed offset at assignment",
    "bell": "wakeup",
    "board": "replica status",
    "calm": "fetch fairness",
    "cell": "status block",
    "desk": "bridge",
    "feed": "dispatcher",
    "gate": "startup barrier",
    "guard": "watchdog",
    "handed": "dispatched",
    "intake": "flow control",
    "matrix": "what it is a table of",
    "note": "commit metadata",
    "notes": "commit metadata",
    "own": "what is owned",
    "pace": "duration estimate",
    "patience": "limit, time-out",
    "relief": "fetch fairness",
    "ring": "notify",
    "say": "echo",
    "serial": "transaction id",
    "served": "fetch fairness",
    "standing": "membership check",
    "suspect": "fenced",
    "told": "reported",
    "unit": "response batch entry",
    "units": "response batch entries",
    "wish": "start limit requested",
}
"""Ordinary English in prose, but retired as a word in the names of modules, classes, functions and variables."""

# Alone: "dead letter" is the field's term, and "letters and digits" are of the alphabet.
LETTER = re.compile(r"(?<!\bdead[ _-])\bletters?\b(?!,? (?:and )?digits)", re.IGNORECASE)

MEASURES = {"unit", "units"}  # of a duration or a size
ALLOWED = {
    "benchmarks/": MEASURES,
    "pipeline/": MEASURES,
    "tests/container/": MEASURES,
    "pipeline/report/style.py": {"letter"},  # CSS: letter-spacing
    "worker/cli/": MEASURES,
    "worker/settings/": MEASURES,
    "worker/core/": {"suspect"},  # of a crash
}
"""Names that a file or directory may use all the same: for another meaning, or because a library chose them."""

PHRASES = re.compile(rf"\b({'|'.join(word for word in RETIRED)})\b", re.IGNORECASE)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+[0-9]*")
ESCAPE = re.compile(r"\\[abfnrtv]")  # of a string literal
KINDS = {".py", ".md", ".env", ".yaml", ".yml"}
GENERATED = re.compile(r"<!-- [a-z-]+: generated -->.*?<!-- end -->", re.DOTALL)


def words(identifier: str) -> list[str]:
    """The words of a name: ``put_back`` and ``PutBack`` are both ``put`` and ``back``."""
    return [word.lower() for word in WORD.findall(identifier)]


def in_prose(text: str) -> list[str]:
    """The retired words in a text, identifiers in it included."""
    spaced = re.sub(r"[A-Za-z_]+", lambda found: " ".join(WORD.findall(found[0])), " ".join(text.split()))
    found = [match[1].lower() for match in PHRASES.finditer(re.sub(" +", " ", spaced))]
    return found + [match[0].lower() for match in LETTER.finditer(spaced)]


@functools.cache  # most names occur often
def in_name(identifier: str) -> tuple[str, ...]:
    """The retired words in the name of something that this project defines."""
    return (*in_prose(identifier), *(word for word in words(identifier) if word in RETIRED_NAMES))


def defined(tree: ast.AST) -> set[str]:
    """The names that a module defines: functions, classes, arguments, variables and attributes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def texts(source: str) -> str:
    """The comments and strings of a Python module."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    found = [t.string for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type in kinds]
    return ESCAPE.sub(" ", "\n".join(found))


def retired(path: str, text: str) -> set[str]:
    """The retired words that a file uses, its name included."""
    found = [*in_name(Path(path).stem), *in_prose(texts(text) if path.endswith(".py") else GENERATED.sub("", text))]
    if path.endswith(".py"):
        for name in defined(ast.parse(text)):  # the name of a test is a sentence
            found += in_prose(name) if name.startswith("test_") else in_name(name)
    return set(found).difference(*(allowed for place, allowed in ALLOWED.items() if path.startswith(place)))


def is_checked(file: Path) -> bool:
    path = file.relative_to(ROOT)
    return file.is_file() and file.suffix in KINDS and str(path) not in UNCHECKED and "pb" not in path.parts


def checked(entry: str) -> list[Path]:
    files = [ROOT / entry] if "." in entry else sorted((ROOT / entry).rglob("*"))
    return [file for file in files if is_checked(file)]


@pytest.mark.parametrize("entry", CLEAN)
def test_no_retired_word_is_used(entry: str) -> None:
    """The glossary's words are used instead."""
    found = {str(f.relative_to(ROOT)): retired(str(f.relative_to(ROOT)), f.read_text("utf-8")) for f in checked(entry)}
    better = RETIRED_NAMES | RETIRED | dict.fromkeys(("letter", "letters"), "dead letter")
    assert {path: {word: better[word] for word in sorted(used)} for path, used in found.items() if used} == {}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("the lane is closed", "lane"),
        ("`LaneState` and `_put_back`", "lane"),
        ("`_put_back(task)`", "put back"),
        ("it goes on for\never", "for ever"),
        ("the letters are counted", "letters"),
    ],
)
def test_a_retired_word_is_found_in_prose(text: str, word: str) -> None:
    """Also in an identifier, at the end of a line, and in capitals."""
    assert word in in_prose(text)


@pytest.mark.parametrize(
    "text", ["dead letters", "a dead-letter topic", "letters, digits", "planes", "an airplane's note", "the base image"]
)
def test_other_words_are_left_alone(text: str) -> None:
    """A part of a word is not the word."""
    assert in_prose(text) == []


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("def bell(): ...", "bell"),
        ("class StoreDesk: ...", "desk"),
        ("def f(serial): ...", "serial"),
        ("self.notes_read = 1", "notes"),
        ('"""Puts a lane to rest."""', "lane"),
        ("x = 1  # asked anew", "anew"),
    ],
)
def test_a_retired_word_is_found_in_code(code: str, word: str) -> None:
    """In what is defined, in docstrings and in comments."""
    assert word in retired("worker/module.py", code)


def test_a_name_from_a_library_is_left_alone() -> None:
    """Only what a module defines counts, not what it uses."""
    assert retired("worker/module.py", "class Tree(BaseModel): ...\nint(text, base=16)") == set()
