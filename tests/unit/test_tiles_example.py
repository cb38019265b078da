"""The example that cuts images into tiles."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self

import pytest
from click.testing import CliRunner
from PIL import Image

import worker
from examples import gallery, tiles
from examples.gallery import page
from worker.testing import run_handler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from worker.handlers.context import Context
    from worker.testing import Result


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Create an image of 600 x 300 pixels. With tiles of 256 it has three levels, and 64 x 32 is none of them."""
    path = tmp_path / "photo.png"
    Image.effect_noise((600, 300), 50).save(path)
    return path


def cut(path: Path, **options: object) -> Result:
    return run_handler(tiles.cut, str(path), kwargs={"target": str(path.parent / "tiles")}, **options)  # type: ignore[arg-type]


def files(path: Path) -> dict[str, bytes]:
    folder = path.parent / "tiles"
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_every_level_is_cut(photo: Path) -> None:
    result = cut(photo)
    assert result.outcome == "OK", result.message
    index = {"image": "photo.png", "width": 600, "height": 300, "tiles": 9}
    assert json.loads(result.result) == index
    written = files(photo)
    assert json.loads(written.pop("photo/index.json")) == index
    assert len(written) == 9
    with Image.open(photo.parent / "tiles/photo/2/1-2.webp") as last:
        assert last.size == (600 - 512, 300 - 256)


def test_the_handler_reports_progress_and_saves_a_checkpoint_for_each_level(photo: Path) -> None:
    result = cut(photo)
    assert result.checkpoints == (b"0", b"1", b"2")
    assert result.progress[-1] == (1.0, "level 2 of 2")


def test_the_next_attempt_resumes_after_the_checkpoint(photo: Path) -> None:
    """The tiles of earlier levels exist already."""
    assert cut(photo, resume=b"1").checkpoints == (b"2",)
    assert {name.split("/")[1] for name in files(photo)} == {"2", "index.json"}


def test_a_second_run_writes_the_same_files(photo: Path) -> None:
    cut(photo)
    before = files(photo)
    cut(photo)
    assert files(photo) == before


def test_the_handler_stops_when_it_is_cancelled(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops between two rows of tiles."""
    cut_level = tiles._cut_level

    def handler(request: Any, context: Context, **kwargs: Any) -> dict[str, Any]:
        def interrupted(*arguments: Any) -> Iterator[int]:
            for row in cut_level(*arguments):
                context.cancelled.set("drain")
                yield row

        monkeypatch.setattr(tiles, "_cut_level", interrupted)
        return tiles.cut(request, context, **kwargs)

    result = run_handler(handler, str(photo), kwargs={"target": str(photo.parent / "tiles")})
    assert (result.outcome, result.cancelled) == ("CANCELLED", "drain")
    assert "photo/index.json" not in files(photo)


def test_a_file_that_is_not_an_image_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no image at all")
    assert cut(tmp_path / "broken.jpg").outcome == "DEAD_LETTERED"


def test_an_image_that_is_too_large_is_rejected(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MOST_PIXELS", 1_000)
    result = cut(photo)
    assert (result.outcome, "1,000 are allowed" in result.message) == ("DEAD_LETTERED", True)


def test_a_missing_file_fails_the_attempt(tmp_path: Path) -> None:
    """Another attempt follows, because the file may be created later."""
    assert cut(tmp_path / "missing.jpg").outcome == "FAILED"


@pytest.mark.parametrize(("pixels", "levels"), [(1, 1), (256, 1), (257, 2), (512, 2), (513, 3)])
def test_the_levels_go_from_one_tile_to_the_whole_image(pixels: int, levels: int) -> None:
    found = tiles.levels_of(pixels, 1, 256)
    assert [level.number for level in found] == list(range(levels))
    assert (found[-1].width, found[-1].height) == (pixels, 1)
    assert found[0].width <= 256


def test_the_page_escapes_names() -> None:
    assert '<img src="a&quot;b/0/0-0.webp"' in page(['a"b'])


class LocalClient:
    """Stands in for ``worker.Client``: it runs the handler itself."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, payload: str, key: str) -> Future[bytes]:
        future: Future[bytes] = Future()
        done = run_handler(tiles.cut, payload, key=key.encode(), kwargs={"target": str(self._target)})
        if done.outcome == "OK":
            future.set_result(done.result)
        else:
            future.set_exception(worker.TaskFailed(done.outcome, done.error_type, done.message, None))  # type: ignore[arg-type]
        return future


def test_the_gallery_cuts_the_images_of_a_folder_into_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "Client", lambda: LocalClient(tmp_path / "tiles"))
    images, target = str(tmp_path / "images"), str(tmp_path / "tiles")
    assert CliRunner().invoke(gallery.main, ["paint", images, "--count", "2"]).exit_code == 0
    Image.new("RGB", (40, 30)).save(tmp_path / "images/set-01.jpg")  # replaces the large image, which takes seconds
    done = CliRunner().invoke(gallery.main, ["run", images, target])
    assert done.exit_code == 1
    assert "DEAD_LETTERED: Reject: not an image" in done.output
    assert "2 images cut, 1 failed" in done.output
    assert (tmp_path / "tiles/index.html").read_text().count("<img") == 2
    assert len(list((tmp_path / "tiles").glob("*/index.json"))) == 2
