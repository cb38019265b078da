"""Loading of the handler. An error is one line that names the file and line of the user's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.users_modules import writing_modules
from worker.errors import ExitCode, HandlerError
from worker.handlers.loader import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.users_modules import Write


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Yield a function that writes a module into the current directory and returns its name."""
    with writing_modules(tmp_path, monkeypatch, "users_handler") as write:
        yield write


def complaint(reference: str, kwargs: dict[str, Any] | None = None) -> str:
    with pytest.raises(HandlerError) as caught:
        load(reference, kwargs or {})
    assert caught.value.exit_code is ExitCode.HANDLER_UNLOADABLE
    assert reference in str(caught.value)
    return str(caught.value)


GOOD = """
import functools

def handle(request, context): return "plain"
def with_options(request, context, *, model, depth=1): return model
def with_any(request, context, **options): return str(options)
class Handlers:
    @staticmethod
    def static(request, context): return "static"
    @classmethod
    def of_class(cls, request, context): return "class"
class Callable:
    def __call__(self, request, context): return "called"
called = Callable()
bound = functools.partial(with_options, model="bound")
"""


@pytest.mark.parametrize(
    ("attribute", "kwargs", "result"),
    [
        ("handle", {}, "plain"),
        ("with_options", {"model": "m"}, "m"),
        ("with_any", {"x": 1}, "{'x': 1}"),
        ("Handlers.static", {}, "static"),
        ("Handlers.of_class", {}, "class"),
        ("called", {}, "called"),
        ("bound", {}, "bound"),
        ("bound", {"depth": 2}, "bound"),
    ],
)
def test_a_callable_that_takes_a_request_and_a_context_is_a_handler(
    module: Write, attribute: str, kwargs: dict[str, Any], result: str
) -> None:
    """Its module may be in the current directory, as with ``python -m``."""
    handler = load(f"{module(GOOD)}:{attribute}", kwargs)
    assert handler(object(), object(), **kwargs) == result


@pytest.mark.parametrize("reference", ["", "module", "module:", ":function", "module.function"])
def test_a_reference_has_two_parts(reference: str) -> None:
    assert "package.module:function" in complaint(reference)


def test_a_module_that_is_not_there_is_named() -> None:
    assert "No module named 'no_such_module'" in complaint("no_such_module:handle")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import sys\n\nimport no_such_library\n", "No module named 'no_such_library'"),
        ("import sys\n\nraise RuntimeError('not configured')\n", "RuntimeError: not configured"),
        ("import sys\n\nsys.exit('no licence')\n", "SystemExit: no licence"),
    ],
)
def test_an_error_of_the_users_module_names_its_line(module: Write, source: str, what: str) -> None:
    """It does not name a line of the import machinery."""
    said = complaint(f"{module(source)}:handle")
    assert what in said
    assert "users_handler.py, line 3" in said
    assert source.splitlines()[2] in said


def test_an_error_deep_in_a_library_names_the_users_line(module: Write) -> None:
    """Users can change this line, but not the line of the library."""
    name = module('import json\n\nSETTINGS = json.loads("{")\n')
    said = complaint(f"{name}:handle")
    assert "users_handler.py, line 3" in said


def test_a_syntax_error_names_its_file_and_line(module: Write, tmp_path: Path) -> None:
    name = module("import sys\n\ndef handle(:\n")
    said = complaint(f"{name}:handle")
    assert "SyntaxError: invalid syntax" in said
    assert f"({tmp_path / 'users_handler.py'}, line 3)" in said


@pytest.mark.parametrize("source", ["\nx = = 1\n", "\n1 / 0\n"])
def test_an_error_in_another_module_of_the_user_names_its_file_and_line(
    module: Write, tmp_path: Path, source: str
) -> None:
    module(source, "users_helper")
    name = module("import users_helper")
    assert f"{tmp_path / 'users_helper.py'}, line 2" in complaint(f"{name}:handle")


def test_the_error_for_an_unknown_function_lists_the_functions_of_the_module(module: Write) -> None:
    said = complaint(f"{module(GOOD)}:handel")
    assert "has no 'handel'" in said
    assert "['handle', 'with_any', 'with_options']" in said


BAD = """
import functools

number = 7
async def coroutine(request, context): return "x"
def generator(request, context): yield "x"
async def stream(request, context): yield "x"
class Asynchronous:
    async def __call__(self, request, context): return "x"
asynchronous = Asynchronous()
partial = functools.partial(coroutine)
class Class:
    def __init__(self, request, context): pass
def no_context(request): return "x"
def named(request, context, model): return "x"
"""


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        ("number", "int, not a function"),
        ("coroutine", "plain function"),
        ("generator", "plain function"),
        ("stream", "plain function"),
        ("asynchronous", "plain function"),
        ("partial", "plain function"),
        ("Class", "class"),
        ("no_context", "too many positional arguments"),
        ("named", "missing a required argument: 'model'"),
    ],
)
def test_an_object_that_cannot_be_a_handler_is_refused(module: Write, attribute: str, why: str) -> None:
    """The worker refuses it at the start. Otherwise every request of the topic would become a dead letter."""
    assert why in complaint(f"{module(BAD)}:{attribute}")


@pytest.mark.parametrize(
    ("attribute", "kwargs", "why"),
    [
        ("handle", {"model": "m"}, "unexpected keyword argument 'model'"),
        ("with_options", {"depth": 2}, "'model'"),
        ("with_options", {"model": "m", "depht": 2}, "'depht'"),
        ("handle", {"context": 1}, "'context'"),
    ],
)
def test_the_error_for_wrong_keyword_arguments_names_them(
    module: Write, attribute: str, kwargs: dict[str, Any], why: str
) -> None:
    """So a misspelt ``WORKER_HANDLER_KWARGS`` is found before the first task."""
    said = complaint(f"{module(GOOD)}:{attribute}", kwargs)
    assert why in said
    assert f"{next(iter(kwargs))}=…" in said


def test_a_builtin_without_a_signature_is_accepted() -> None:
    assert load("builtins:max", {}) is max


def test_an_interrupt_during_the_import_is_not_a_handler_error(module: Write) -> None:
    with pytest.raises(KeyboardInterrupt):
        load(f"{module('raise KeyboardInterrupt')}:handle", {})
