"""docs/operations.md names what the program shows, no more and no less.

``python -m tests.unit.test_docs`` rewrites the generated tables after a change of worker/vocabulary.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from worker.errors import ExitCode
from worker.vocabulary import EVENTS, METRICS

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "docs/operations.md"


def metrics_table() -> str:
    rows = [
        f"| `worker_{m.name}` | {m.kind} | {', '.join(f'`{x}`' for x in _labels(m.name, m.label))} | {m.meaning} |"
        for m in METRICS
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows, ""])


def _labels(name: str, label: str | None) -> list[str]:
    # The one number that belongs to the replica and not to a slot.
    slot = [] if name == "processes" else ["slot"]
    return [*slot, label] if label else slot


def events_table() -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in EVENTS.items()]
    return "\n".join(["| event | meaning |", "|---|---|", *rows, ""])


TABLES = {"metrics": metrics_table, "events": events_table}


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}: generated -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def rewritten(text: str) -> str:
    for name, table in TABLES.items():
        content = table()
        text = _block(name).sub(lambda found, content=content: found[1] + content + found[3], text)  # type: ignore[misc]
    return text


@pytest.mark.parametrize("name", TABLES)
def test_table_is_what_the_vocabulary_says(name: str) -> None:
    found = _block(name).search(OPERATIONS.read_text(encoding="utf-8"))

    assert found is not None, f"no table between the marks `{name}: generated` and `end`"
    assert found[2] == TABLES[name](), "out of date: run `python -m tests.unit.test_docs`"


def test_every_event_of_the_table_is_logged_somewhere() -> None:
    files = [file for file in (ROOT / "worker").rglob("*.py") if file.name != "vocabulary.py"]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert [event for event in EVENTS if f'"{event}"' not in code] == []


def test_every_exit_code_of_run_is_explained() -> None:
    section = OPERATIONS.read_text(encoding="utf-8").partition("## Signals and exit codes")[2].partition("\n## ")[0]
    explained = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}

    assert explained == {int(code) for code in ExitCode}


if __name__ == "__main__":
    OPERATIONS.write_text(rewritten(OPERATIONS.read_text(encoding="utf-8")), encoding="utf-8")
