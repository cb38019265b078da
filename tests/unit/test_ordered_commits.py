"""Which processes need commits that no late copy can undo."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.process_fake.world import CONFIG
from worker.process import main


class BuiltError(Exception):
    """Ends the construction of the process."""


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_commits_are_ordered_at_most_once(monkeypatch: pytest.MonkeyPatch, guarantee: str) -> None:
    """At-least-once may repeat a task after a fault, and exactly-once commits in transactions."""
    ordered = []

    def make(_properties: object, *, ordered_commits: bool) -> Any:
        ordered.append(ordered_commits)
        raise BuiltError

    monkeypatch.setattr(main, "ConfluentConsumer", make)
    monkeypatch.setattr(main, "executor_of", lambda *_: None)
    monkeypatch.setattr(main, "_consumer_properties", lambda *_: {})
    config: Any = dataclasses.replace(CONFIG, guarantee=guarantee)
    with pytest.raises(BuiltError):
        main._build(config, config, None)
    assert ordered == [guarantee == "at-most-once"]
