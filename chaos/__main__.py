"""The fault-injection suite behind ``scripts/chaos``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from chaos import clocks, faults, features, node, procutil, record, requests, run_lists, stores, suite
from chaos import plan as plans
from chaos.options import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.plan import Plan
    from chaos.record import Line


def _choice(*values: str) -> Any:
    return click.Choice(values)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--seed", type=int, default=1, help="Seed of the plan.")
@click.option("--guarantee", type=_choice("at-most-once", "at-least-once", "exactly-once"), default="at-least-once")
@click.option("--ordering", type=_choice("partition", "key", "unordered"), default="partition")
@click.option("--protocol", type=_choice("consumer", "classic"), default="consumer")
@click.option("--brokers", type=click.IntRange(1, 3), default=1)
@click.option("--mix", default="all", help=f"Faults to inject: {', '.join(faults.MIXES)}, or names joined by +.")
@click.option("--load", "traffic", type=click.Choice(sorted(requests.RATES)), default="mixed", help="Requests to send.")
@click.option("--store", type=_choice("", "sqlite", "postgresql"), default="", help="Use an offset store.")
@click.option("--faults", "count", type=int, default=0, help="Number of faults, instead of --minutes.")
@click.option("--minutes", type=float, default=1.0, help="How long to inject faults.")
@click.option("--gap", type=float, default=1.5, help="Average number of seconds between faults.")
@click.option("--session", type=float, default=5.0, help="Session time-out of the group, in seconds.")
@click.option("--attempts", type=int, default=0, help="WORKER_MAX_ATTEMPTS. 0: 25, or 3 in the mix requests.")
@click.option("--heartbeat", type=float, default=0.5, help="Heartbeat interval of the group, in seconds.")
@click.option("--with", "used", default="", help=f"Features, joined by +, or drawn: {', '.join(features.FEATURES)}.")
@click.option("--quick", is_flag=True, help="Run the quick form: all three guarantees, 63 faults.")
@click.option("--long", "long_form", is_flag=True, help="Run the long form: more than 2,000 faults.")
@click.option("--features", is_flag=True, help="Run the features: detaching, cancels and more, 1,000 faults.")
@click.option("--soak", is_flag=True, help="Run the soak: one hour on three brokers, a fault every 5 s.")
@click.option("--part", "parts", type=int, multiple=True, help="Run only this run of the forms, from 1. Repeatable.")
@click.option("--jobs", type=click.IntRange(1, 8), default=1, help="Number of runs at the same time.")
@click.option("--write", is_flag=True, help="Append the results to the record, and write docs/reliability*.md.")
@click.option("--document", is_flag=True, help="Write docs/reliability*.md from the record, and run nothing.")
@click.option("--keep", is_flag=True, help="Keep the folder with all logs, even if everything passed.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the plan, and run nothing.")
@click.option("--list", "only_list", is_flag=True, help="Print the faults, and run nothing.")
def main(*, document: bool, **given: Any) -> None:
    """Inject faults into replicas, brokers and networks, and check every guarantee.

    Exit code 0: every run passed. 1: a run broke an invariant or crashed.
    """
    if given.pop("only_list"):
        for kind in faults.KINDS:
            click.echo(f"{kind.name:28} {kind.area:8} {kind.meaning}")
        return
    if document:
        suite.write_documents()
        return
    write, keep, only_plan, jobs = given.pop("write"), given.pop("keep"), given.pop("only_plan"), given.pop("jobs")
    chosen = _chosen(given)
    stores.fetch([] if only_plan else {one.store for one in chosen})
    if not only_plan and any("upgrade" in one.uses for one in chosen):
        node.fetch_old()
    rights = procutil.private_machine() | clocks.rights()
    try:
        planned = [plans.draw(one, rights=rights) for one in chosen]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if only_plan:
        for one in planned:
            click.echo("\n".join([one.options.title, *map(str, one.faults)]))
        return
    sys.exit(
        suite.run(_possible(planned, rights), _identity() if write else None, suite.Ways("disks" in rights, keep, jobs))
    )


def _possible(planned: Sequence[Plan], rights: frozenset[str]) -> Sequence[Plan]:
    """Return the plans that this machine can execute, and say what it cannot do."""
    for missing in sorted(faults.RIGHTS - rights):
        click.echo(f"not available here: {faults.RIGHTS_NEED[missing]}", err=True)
    possible = [one for one in planned if one.faults or one.options.mix == "requests"]
    for one in planned:
        if one not in possible:
            click.echo(f"not run, because none of its faults is available: {one.options.title}", err=True)
    if not possible:
        raise click.ClickException("no run is possible")
    return possible


def _chosen(given: dict[str, Any]) -> Sequence[Options]:
    """Return the runs of the named forms, or the one that the options describe."""
    forms = {"quick": run_lists.QUICK, "long_form": run_lists.LONG, "features": run_lists.FEATURES}
    named = [one for name, form in forms.items() if given.pop(name) for one in form]
    soak, parts = given.pop("soak"), given.pop("parts")
    if soak:
        named.append(run_lists.soak(_given_by_user(given)))
    if not named:
        return [_options(given)]
    if beyond := [part for part in parts if not 0 < part <= len(named)]:
        raise click.UsageError(f"--part {beyond[0]}: there are the runs 1 to {len(named)}")
    return [named[part - 1] for part in parts] or named


def _given_by_user(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run that are on the command line, without the defaults."""
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    chosen = {name: value for name, value in given.items() if context.get_parameter_source(name) is not default}
    ours = _options(given).as_json()
    names = {"count": "faults", "traffic": "load", "used": "features"}
    return {name: ours[name] for name in (names.get(one, one) for one in chosen)}


def _options(given: dict[str, Any]) -> Options:
    """Return the options of one run. Raise click.UsageError for features that do not exist."""
    try:
        used = features.parse(given.pop("used"), given["seed"], given["store"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return Options(**given | {"faults": given.pop("count"), "load": given.pop("traffic"), "features": used})


def _identity() -> Line:
    """Return which code runs, for the record."""
    try:
        return record.identity()
    except RuntimeError as error:
        raise click.ClickException(f"--write: {error}") from None


if __name__ == "__main__":
    main()
