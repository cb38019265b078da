"""The job around ``examples.tiles``: from a folder of images to a folder of tiles and a page that shows them.

``python -m examples.gallery paint images`` makes images to try it with, ``python -m examples.gallery run images tiles``
sends a request for each image, waits for the answers and writes ``tiles/index.html``.
"""

from __future__ import annotations

import html
import sys
from concurrent.futures import as_completed
from pathlib import Path
from typing import TYPE_CHECKING

import click
from PIL import Image

import worker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff"}
_VIEW = (-2.2, -1.2, 0.8, 1.2)  # the part of the plane that shows the whole set


@click.group()
def main() -> None:
    """Cut a folder of images into tiles."""


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--count", default=12, show_default=True, help="How many images.")
def paint(folder: Path, count: int) -> None:
    """Paint images of 500 to 4000 pixels, and write one file that is not an image."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        width = 500 + 3500 * number // max(1, count - 1)
        small = Image.effect_mandelbrot((500, 400), _VIEW, 20 + 10 * number)
        small.resize((width, width * 4 // 5)).convert("RGB").save(folder / f"set-{number:02}.jpg")
    (folder / "broken.jpg").write_bytes(b"no image at all")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.argument("target", type=click.Path(path_type=Path))
def run(folder: Path, target: Path) -> None:
    """Send a request per image, wait, and write a page. Exit with 1 if an image failed."""
    images = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)
    with worker.Client() as client:
        futures: dict[Future[bytes], Path] = {client.submit(str(path), key=path.name): path for path in images}
        failed = dict(_failures(futures))
    good = [path.stem for path in images if path not in failed]
    target.mkdir(parents=True, exist_ok=True)
    (target / "index.html").write_text(page(good), encoding="utf-8")
    click.echo(f"{len(good)} images cut, {len(failed)} failed: {target / 'index.html'}")
    sys.exit(1 if failed else 0)


def _failures(futures: Mapping[Future[bytes], Path]) -> list[tuple[Path, str]]:
    """Print a line for each image. Return the images without tiles, with the reason."""
    failures = []
    for number, future in enumerate(as_completed(futures), start=1):
        path = futures[future]
        try:
            said = str(future.result(), "utf-8")
        except worker.TaskFailed as error:
            said = f"{error.outcome}: {error.error_type}: {error.message}"
            failures.append((path, said))
        click.echo(f"{number}/{len(futures)} {path.name}: {said}")
    return failures


def page(names: list[str]) -> str:
    """Return a page with the smallest level of each image."""
    pictures = "\n".join(f'<img src="{html.escape(name)}/0/0-0.webp" title="{html.escape(name)}">' for name in names)
    return f"<!doctype html>\n<title>Gallery</title>\n{pictures}\n"


if __name__ == "__main__":
    main()
