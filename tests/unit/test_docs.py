"""The reference pages describe exactly what the program has.

``python -m tests.unit.test_docs`` rewrites the generated parts of the documentation after a change of
worker/vocabulary.py, config/worker.env, proto/task.proto or the help of a command.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from tests.unit.test_imports import LAYERS
from worker.cli.app import cli
from worker.errors import ExitCode
from worker.settings import Settings
from worker.vocabulary import EVENTS, METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SIGNALS = DOCS / "reference/signals.md"
VARIABLE = re.compile(r"^#?([A-Z][A-Z0-9_]+)=", re.MULTILINE)
CODE = ("worker", "pipeline", "chaos", "benchmarks", "examples")
DEVELOPMENT = {"KAFKA_PORT", "KAFKA_DATA_DIR", "KAFKA_VERSION"}  # of scripts/kafka, not of the worker
COLUMNS = 100
NOT_YET = {
    "benchmarks.md",
    "benchmarks-figures.md",
    "isolation.md",
    "reliability.md",
    "reliability-record.md",
}  # still to be wrapped
WRAPPED = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *(str(page.relative_to(ROOT)) for page in sorted(DOCS.rglob("*.md")) if page.name not in NOT_YET),
]
TITLE = re.compile(r"^# -+ (.+)$", re.MULTILINE)


def metrics() -> str:
    rows = [
        f"| `worker_{m.name}` | {m.kind} | {', '.join(f'`{x}`' for x in _labels(m.name, m.label))} | {m.meaning} |"
        for m in METRICS
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])


def _labels(name: str, label: str | None) -> list[str]:
    # This metric belongs to the replica and not to a slot.
    slot = [] if name == "processes" else ["slot"]
    return [*slot, label] if label else slot


def events() -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in EVENTS.items()]
    return "\n".join(["| event | meaning |", "|---|---|", *rows])


def settings() -> str:
    """Return a table for each section of config/worker.env, in the same order."""
    lines: list[str] = []
    for paragraph in (ROOT / "config/worker.env").read_text(encoding="utf-8").split("\n\n"):
        if title := TITLE.search(paragraph):
            heading = title[1][0].upper() + title[1][1:]
            lines += ["", f"## {heading}", "", "| variable | default | meaning |", "|---|---|---|"]
        elif lines and VARIABLE.search(paragraph):
            lines.append(_setting(paragraph))
    return "\n".join(lines).strip()


def _setting(paragraph: str) -> str:
    text = " ".join(line[2:] for line in paragraph.splitlines() if line.startswith("# "))
    found = VARIABLE.findall(paragraph)
    name = "KAFKA_CONFIG_<KEY>" if text.startswith("KAFKA_CONFIG_<KEY>") else found[0]
    meaning, _, default = text.partition(" Default: ")
    shown = f"`{default.rstrip('.')}`" if default else "required" * ("Required." in meaning)
    meaning = meaning.removesuffix(" Required.").replace("<", "&lt;").replace("|", "&#124;")
    return f"| `{name}` | {shown} | {meaning} |"


def commands() -> str:
    """Return the help of each command and its subcommands."""
    return "\n\n".join(f"## {path}\n\n```text\n{text.rstrip()}\n```" for path, text in _help("worker", cli))


def _help(path: str, command: click.Command) -> Iterator[tuple[str, str]]:
    names = cli.context_settings["help_option_names"]
    command._help_option = None  # click keeps the one of the first context, maybe of another test
    context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100, help_option_names=names)
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _help(f"{path} {name}", inner)


def proto() -> str:
    """Return the messages, without the file's own comment."""
    text = (ROOT / "proto/task.proto").read_text(encoding="utf-8")
    return f"```protobuf\n{text[text.index('syntax = ') :].rstrip()}\n```"


def packages() -> str:
    """Return a table of the worker's packages, from the outside in, with the packages that each may import."""
    rows = []
    for name, allowed in LAYERS.items():
        imported = ", ".join(f"`{one}`" for one in LAYERS if one in allowed) or "none"
        rows.append(f"| `worker/{name}` | {_summary(name)} | {imported} |")
    return "\n".join(["| package | what it holds | imports |", "|---|---|---|", *rows])


def _summary(package: str) -> str:
    docstring = ast.get_docstring(ast.parse((ROOT / "worker" / package / "__init__.py").read_text(encoding="utf-8")))
    return " ".join((docstring or "").partition("\n\n")[0].split())


GENERATED = {
    "metrics": metrics,
    "events": events,
    "settings": settings,
    "cli": commands,
    "proto": proto,
    "packages": packages,
}
BLOCK = re.compile(r"(<!-- ([a-z]+): generated -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def rewritten(text: str) -> str:
    """Return the page with up-to-date generated blocks."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{GENERATED[found[2]]()}\n\n{found[4]}", text)


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_part_is_up_to_date(name: str) -> None:
    """Each part is in exactly one page, as the code generates it now."""
    found = [
        block for page in pages() for block in BLOCK.finditer(page.read_text(encoding="utf-8")) if block[2] == name
    ]

    assert len(found) == 1, f"one block between the marks `{name}: generated` and `end` is needed"
    assert found[0][3] == f"\n{GENERATED[name]()}\n\n", "out of date: run `python -m tests.unit.test_docs`"


def prose(text: str) -> list[str]:
    """Return the lines of a page that must be wrapped, without generated parts, code and tables."""
    text = re.sub(r"^```.*?^```$", "", BLOCK.sub("", text), flags=re.DOTALL | re.MULTILINE)
    return [line for line in text.splitlines() if not line.startswith("|")]


@pytest.mark.parametrize("page", WRAPPED, ids=str)
def test_prose_is_wrapped(page: str) -> None:
    """A line has at most a hundred columns."""
    lines = prose((ROOT / page).read_text(encoding="utf-8"))

    assert [line for line in lines if len(line) > COLUMNS] == []


def test_every_setting_that_a_page_names_exists() -> None:
    """This covers ``WORKER_…`` and ``KAFKA_…`` in prose and examples. ``KAFKA_CONFIG_…`` may be any property."""
    known = Settings.variables() | DEVELOPMENT
    named = {
        (str(page.relative_to(ROOT)), name)
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages()]
        for name in re.findall(r"\b(?:WORKER|KAFKA)_[A-Z_]*[A-Z]\b", page.read_text(encoding="utf-8"))
        if not name.startswith("KAFKA_CONFIG") and name.removesuffix("_FILE") not in known
    }

    assert named == set()


def test_every_event_of_the_table_is_logged_somewhere() -> None:
    """The vocabulary has no event that the code does not use."""
    files = [file for file in (ROOT / "worker").rglob("*.py") if file.name != "vocabulary.py"]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert [event for event in EVENTS if f'"{event}"' not in code] == []


def test_every_exit_code_of_run_is_explained() -> None:
    """The exit codes are those of ``worker run`` and of its processes."""
    section = SIGNALS.read_text(encoding="utf-8").partition("## Exit codes")[2]
    explained = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}

    assert explained == {int(code) for code in ExitCode}


def test_pages_that_the_code_names_exist() -> None:
    """Comments, docstrings, settings and texts name ``docs/guarantees.md``, ``docs/decisions/0060`` and others."""
    places = [*(ROOT / "config").iterdir(), *(file for top in CODE for file in (ROOT / top).rglob("*.py"))]
    named = {
        (str(file.relative_to(ROOT)), name)
        for file in places
        for name in re.findall(r"docs/[\w/-]+(?:\.md)?", file.read_text(encoding="utf-8"))
    }

    assert {(file, name) for file, name in named if not list(ROOT.glob(f"{name}*"))} == set()


def test_the_path_of_a_request_names_functions_that_exist() -> None:
    """They are in the table of docs/architecture.md. A row without a file is about the file of the row before."""
    file, missing = "", []
    for row in re.findall(r"^\| \d+ \|(.*)$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE):
        file = next(iter(re.findall(r"\(`(\w+/\w+\.py)`\)", row)), file)
        for owner, name in re.findall(r"`([A-Z]\w+)\.(\w+)`", row.split("|")[0]):
            text = (ROOT / "worker" / file).read_text()
            if not re.search(rf"^class {owner}[(:].*^    def {name}\(", text, re.MULTILINE | re.DOTALL):
                missing.append(f"{owner}.{name}")
    assert file
    assert missing == []


if __name__ == "__main__":
    for page in pages():
        before = page.read_text(encoding="utf-8")
        if (after := rewritten(before)) != before:
            page.write_text(after, encoding="utf-8")
