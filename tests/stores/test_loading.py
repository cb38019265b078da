"""``WORKER_OFFSET_STORE``: the search for the factory, and a one-line error if it fails."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.users_modules import writing_modules
from worker.stores.loading import load
from worker.stores.port import OffsetStore, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.users_modules import Write

GOOD = """
class Store:
    def __init__(self, group): self.group = group
    def positions(self, partitions): return {}
    def begin(self, partition, offset): ...
    def skip(self, partition, offset): ...
    def answers(self, partition, start, stop): yield
    def close(self): ...
def factory(group): return Store(group)
class Factories:
    make = staticmethod(factory)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Yield a function that writes a module into the current directory and returns its name."""
    with writing_modules(tmp_path, monkeypatch, "users_store") as write:
        yield write


def complaint(reference: str) -> str:
    with pytest.raises(StoreError) as caught:
        load(reference, "group")
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("WORKER_OFFSET_STORE=")
    assert reference in text
    return text


@pytest.mark.parametrize("factory", ["factory", "Store", "Factories.make"])
def test_a_factory_gets_the_group_and_creates_a_store(module: Write, factory: str) -> None:
    store = load(f"{module(GOOD)}:{factory}", "my-group")
    assert isinstance(store, OffsetStore)
    assert vars(store) == {"group": "my-group"}


def test_the_included_store_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_STORE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    load("worker.stores.sql:store", "group").close()


@pytest.mark.parametrize("reference", ["", "module", "module:", ":factory", "module.factory"])
def test_a_reference_has_two_parts(reference: str) -> None:
    assert "package.module:factory" in complaint(reference)


def test_a_module_that_is_not_there_is_named() -> None:
    assert "No module named 'no_such_module'" in complaint("no_such_module:factory")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "has no 'factory'"),
        ("factory = 5", "factory is a int, not a function or class"),
        ("1 / 0", "importing users_store failed: ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "importing users_store failed: SystemExit: 3"),
        ("def factory(group):\n    raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("def factory(): ...", "creating the store failed: TypeError: factory() takes 0 positional arguments"),
        ("def factory(group): return {}", "a dict, which has no positions, begin, skip, answers, close"),
        (GOOD + "del Store.skip, Store.answers", "a Store, which has no skip, answers"),
    ],
)
def test_the_error_states_its_cause(module: Write, source: str, said: str) -> None:
    assert said in complaint(f"{module(source)}:factory")


@pytest.mark.parametrize("source", ["x = 1\n1 / 0", "def factory(group):\n    raise ValueError"])
def test_the_error_names_the_line_in_the_users_module(module: Write, tmp_path: Path, source: str) -> None:
    name = module(source)
    assert f"({tmp_path / name}.py, line 2)" in complaint(f"{name}:factory")


def test_the_error_of_an_unavailable_store_is_raised_unchanged(module: Write) -> None:
    """It makes the supervisor start the process again. An error of the settings would end the replica."""
    source = "from worker.stores.port import *\ndef factory(group): raise StoreUnavailableError('away')"
    with pytest.raises(StoreUnavailableError, match=r"^away$"):
        load(f"{module(source)}:factory", "group")


def test_the_included_store_says_what_to_install_if_its_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("worker.stores.sql")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    said = complaint("worker.stores.sql:store")
    assert "needs sqlalchemy: pip install 'kafka-task-worker[store]'" in said
