"""The tables in docs/simulation.md. The text between them is handwritten."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]
_COLUMNS = {
    "mean_wait": "mean wait, s",
    "p99_wait": "99 % wait, s",
    "utilisation": "utilisation",
    "changes": "changes/s",
    "without_owner": "partitions without an owner",
    "coordinator": "coordinator, CPUs",
}
_SHARES = {"utilisation", "without_owner"}


def tables(rows: Sequence[Row], checks: Sequence[Row]) -> dict[str, str]:
    """Return all tables by their names in the page."""
    policies = _policies([row for row in rows if row["sweep"] == "policies"])
    return {"simulation-checks": _checks(checks), "simulation-policies": policies}


def _checks(checks: Sequence[Row]) -> str:
    lines = ["| case | measured | simulated | difference |", "|---|---:|---:|---:|"]
    for check in checks:
        deviation = check["simulated"] / check["measured"] - 1
        lines.append(
            f"| {check['name']} | {check['measured']:.3g} | {check['simulated']:.3g} | {100 * deviation:+.0f} % |"
        )
    return "\n".join(lines)


def _policies(rows: Sequence[Row]) -> str:
    lines = ["| policy | " + " | ".join(_COLUMNS.values()) + " |", "|---|" + "---:|" * len(_COLUMNS)]
    lines += [f"| {row['policy']} | " + " | ".join(_text(name, row[name]) for name in _COLUMNS) + " |" for row in rows]
    return "\n".join(lines)


def _text(name: str, value: float) -> str:
    if name in _SHARES:
        return f"{100 * value:.2g} %"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"  # noqa: PLR2004 - two digits are enough


def fill(page: str, found: dict[str, str]) -> str:
    """Return the page with these tables in place of the former ones."""
    for name, table in found.items():
        block = re.compile(rf"(<!-- {name}: generated -->\n).*?(<!-- end -->)", re.DOTALL)
        match = block.search(page)
        if match is None:
            raise ValueError(f"the page has no block {name}")
        page = f"{page[: match.start()]}{match[1]}\n{table}\n\n{match[2]}{page[match.end() :]}"
    return page
