"""The results as they are kept: a workload measured again replaces itself, the others stay."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.figures import Figure
from benchmarks.report import Piece, Report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def load(file: Path) -> Report:
    """What was kept, or nothing."""
    if not file.is_file():
        return Report({}, {})
    kept = json.loads(file.read_text(encoding="utf-8"))
    pieces = {
        name: Piece(
            [Figure(**{**figure, "values": tuple(figure["values"])}) for figure in piece["figures"]],
            piece["troubles"],
            piece["facts"],
        )
        for name, piece in kept["pieces"].items()
    }
    return Report(pieces, kept["facts"])


def merged(old: Report, new: Report, order: Sequence[str]) -> Report:
    """The new pieces in place of the old ones, in this order. Workloads that are gone go."""
    pieces = {**old.pieces, **new.pieces}
    return Report({name: pieces[name] for name in order if name in pieces}, {**old.facts, **new.facts})


def save(report: Report, file: Path) -> None:
    """A line for each figure, so that changes can be read."""
    pieces = []
    for name, piece in report.pieces.items():
        figures = ",\n".join(f"    {json.dumps(asdict(figure), ensure_ascii=False)}" for figure in piece.figures)
        head = f'"troubles": {_text(piece.troubles)}, "facts": {_text(piece.facts)}'
        pieces.append(f'  {_text(name)}: {{{head}, "figures": [\n{figures}\n  ]}}')
    file.parent.mkdir(parents=True, exist_ok=True)
    body = ",\n".join(pieces)
    file.write_text(f'{{"facts": {_text(report.facts)}, "pieces": {{\n{body}\n}}}}\n', encoding="utf-8")


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
