"""Every command has a help text with an example, and the overview does not cut its sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli as pipeline
from worker.cli.app import cli as worker

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = {"worker": worker, "pipeline": pipeline}
GROUPS = (("worker", "dlq"), ("pipeline",))  # their commands have the examples


def commands() -> Iterator[tuple[str, ...]]:
    for program, group in PROGRAMS.items():
        yield from _below(group, (program,))


def _below(group: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from _below(command, (*path, name))


def help_of(program: str, *path: str) -> str:
    result = CliRunner().invoke(PROGRAMS[program], [*path, "--help"], prog_name=program, terminal_width=100)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("path", [path for path in commands() if path not in GROUPS], ids=" ".join)
def test_a_command_shows_an_example(path: tuple[str, ...]) -> None:
    text = help_of(*path)
    assert "Example" in text
    assert " ".join(path) in text.partition("Example")[2]


@pytest.mark.parametrize("path", [("worker",), *GROUPS], ids=" ".join)
def test_the_overview_does_not_cut_its_sentences(path: tuple[str, ...]) -> None:
    listed = help_of(*path).partition("Commands:")[2]
    assert listed
    assert "..." not in listed
