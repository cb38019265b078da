"""A handler with real work: it cuts an image into tiles at every zoom level, as map viewers load them.

``WORKER_HANDLER=examples.tiles:cut``, with ``WORKER_HANDLER_KWARGS='{"target": "tiles"}'``. It reports progress, makes
a checkpoint after each level, and stops between two rows of tiles when it is asked to.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image, UnidentifiedImageError

import worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.codec import Request
    from worker.handlers.context import Context

MOST_PIXELS = 100_000_000  # a larger image would need more than 300 MB


class Level(NamedTuple):
    """One zoom level: 0 fits into one tile, and each further one has twice the width and height."""

    number: int
    width: int
    height: int


def cut(request: Request, context: Context, *, target: str, size: int = 256) -> dict[str, Any]:
    """Cut the image that the payload names into tiles of ``size`` pixels, ``TARGET/NAME/LEVEL/ROW-COLUMN.webp``.

    A second run writes the same files. ``index.json`` comes last: a folder with it is complete.
    """
    source = Path(request.payload)
    folder = Path(target) / source.stem
    with _opened(source) as image:
        levels = levels_of(image.width, image.height, size)
        total = sum(_tiles_in(level, size) for level in levels)
        done = 0
        for level in levels:
            if level.number > int(context.resume or -1):
                for _ in _cut_level(image, level, folder, size):
                    context.cancelled.raise_if_set()
                context.checkpoint(str(level.number).encode())
            done += _tiles_in(level, size)
            context.progress(done / total, f"level {level.number} of {levels[-1].number}")
    index = {"image": source.name, "width": levels[-1].width, "height": levels[-1].height, "tiles": total}
    _write(folder / "index.json", json.dumps(index).encode())
    return index


def levels_of(width: int, height: int, size: int) -> list[Level]:
    """Return all levels of an image, the smallest first."""
    last = max(0, math.ceil(math.log2(max(width, height) / size)))
    return [Level(n, math.ceil(width / 2 ** (last - n)), math.ceil(height / 2 ** (last - n))) for n in range(last + 1)]


def _opened(source: Path) -> Image.Image:
    """Return the full image. Raise Reject if another attempt would be useless."""
    try:
        image = Image.open(source)
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise worker.Reject(f"not an image: {error}") from error
    if image.width * image.height > MOST_PIXELS:
        image.close()
        raise worker.Reject(f"{image.width} x {image.height} pixels; {MOST_PIXELS:,} are allowed")
    with image:
        return image.convert("RGB")


def _tiles_in(level: Level, size: int) -> int:
    return math.ceil(level.width / size) * math.ceil(level.height / size)


def _cut_level(image: Image.Image, level: Level, folder: Path, size: int) -> Iterator[int]:
    """Write the tiles of one level, and yield after each row."""
    place = folder / str(level.number)
    place.mkdir(parents=True, exist_ok=True)
    scaled = image.resize((level.width, level.height), Image.Resampling.LANCZOS)
    for row in range(math.ceil(level.height / size)):
        for column in range(math.ceil(level.width / size)):
            left, top = column * size, row * size
            box = (left, top, min(left + size, level.width), min(top + size, level.height))
            scaled.crop(box).save(place / f"{row}-{column}.webp", quality=80)
        yield row


def _write(path: Path, content: bytes) -> None:
    """Write the file in one step, so that readers always see a complete file."""
    partial = path.with_suffix(".tmp")
    partial.write_bytes(content)
    partial.replace(path)
