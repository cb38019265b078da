"""Explore the forms of the protocol, and report the numbers of states: ``python -m tests.model [--large]``."""

from __future__ import annotations

import sys

import click

from tests.model.explorer import explore
from tests.model.forms import LARGE, USUAL

for name, form in (USUAL | LARGE if "--large" in sys.argv else USUAL).items():
    found = explore(form)
    result = found.invariant or "holds"
    click.echo(f"{name}: {result}, {found.states:,} states, {found.steps:,} steps, {found.seconds:.1f} s")
    for line in found.trace:
        click.echo(f"    {line}")
