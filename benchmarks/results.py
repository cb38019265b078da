"""The kept results, which come from one engine. Measuring another engine starts a new set."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.figures import Figure
from benchmarks.report import Report, Section

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def load(file: Path) -> Report:
    """Return the kept results, or an empty report."""
    if not file.is_file():
        return Report({}, {})
    kept = json.loads(file.read_text(encoding="utf-8"))
    sections = {
        name: Section(
            [Figure(**{**figure, "values": tuple(figure["values"])}) for figure in section["figures"]],
            section["failures"],
            section["facts"],
        )
        for name, section in kept["sections"].items()
    }
    return Report(sections, kept["facts"])


def merged(old: Report, new: Report, order: Sequence[str]) -> Report:
    """Return the new sections and the old ones of the same engine, in this order.

    Drop sections of another engine, because one document must not compare figures of several engines.
    """
    engines = {section.facts.get("engine") for section in new.sections.values()}
    same = {name: section for name, section in old.sections.items() if {section.facts.get("engine")} == engines}
    sections = {**same, **new.sections}
    return Report({name: sections[name] for name in order if name in sections}, {**old.facts, **new.facts})


def save(report: Report, file: Path) -> None:
    """Write one line for each figure, so that diffs are readable."""
    sections = []
    for name, section in report.sections.items():
        figures = ",\n".join(f"    {json.dumps(asdict(figure), ensure_ascii=False)}" for figure in section.figures)
        head = f'"failures": {_text(section.failures)}, "facts": {_text(section.facts)}'
        sections.append(f'  {_text(name)}: {{{head}, "figures": [\n{figures}\n  ]}}')
    file.parent.mkdir(parents=True, exist_ok=True)
    body = ",\n".join(sections)
    file.write_text(f'{{"facts": {_text(report.facts)}, "sections": {{\n{body}\n}}}}\n', encoding="utf-8")


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
