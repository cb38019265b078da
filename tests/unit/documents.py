"""The code blocks of a page of the documentation, for the tests that run them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<code>.*?)^```$', re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, the name of the file to save it as ("" for none), and its text."""

    language: str
    title: str
    code: str


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page (``docs/index.md``), in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(found["language"], found["title"] or "", found["code"]) for found in BLOCK.finditer(text)]
