"""Lines of columns with exact widths, for pages that must fit the terminal. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DOTS = "…"


class Cut(enum.Enum):
    """Which part of a text is cut if it is too long."""

    END = "end"
    START = "start"  # for names that differ at the end
    TOPIC = "topic"  # for an origin, so that partition and offset stay


class Column(NamedTuple):
    """A column of ``width``; left out if that is 0."""

    title: str
    width: int
    right: bool = False
    cut: Cut = Cut.END


def widest(texts: Iterable[str], most: int, least: int = 1) -> int:
    """Return the width of the longest text, from ``least`` to ``most``."""
    return max(least, min(most, max(map(cell_len, texts), default=0)))


def line(columns: Sequence[Column], parts: Sequence[Text | str]) -> Text:
    """Return the parts side by side, each as wide as its column, with a space between them."""
    cells = [_fitted(part, column) for column, part in zip(columns, parts, strict=True) if column.width]
    return Text(" ").join(cells)


def titles(columns: Sequence[Column]) -> Text:
    """Return the line of titles."""
    return line(columns, [Text(column.title, "bold") for column in columns])


def _fitted(part: Text | str, column: Column) -> Text:
    text = Text(part) if isinstance(part, str) else part.copy()
    if text.cell_len > column.width and column.cut is not Cut.END:
        text = Text(_shortened(text.plain, column), text.style)
    text.truncate(column.width, overflow="ellipsis")
    missing = column.width - text.cell_len
    if column.right:
        text.pad_left(missing)
    else:
        text.pad_right(missing)
    return text


def _shortened(text: str, column: Column) -> str:
    if column.cut is Cut.START:
        return _DOTS + text[len(text) - column.width + 1 :]
    topic, *numbers = text.rsplit("/", 2)
    end = "/".join(["", *numbers])
    return topic[: max(0, column.width - len(end) - 1)] + _DOTS + end
