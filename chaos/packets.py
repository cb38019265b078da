"""Packets that are lost on the way, by iptables in a network of the suite's own: what a proxy cannot do.

The connection goes on, and the kernel sends again what was lost, later and later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos import own

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def lose(ports: Iterable[int], share: float) -> None:
    """Lose this share of the packets to and from these ports, until ``keep``. ``own.private_machine`` comes first."""
    for rule in _rules(ports, share):
        if not own.done("iptables", "-A", *rule):
            raise OSError(f"iptables takes no rule {' '.join(rule)}")


def keep(ports: Iterable[int], share: float) -> None:
    """The opposite, with the same arguments; nothing if it was done already."""
    for rule in _rules(ports, share):
        own.done("iptables", "-D", *rule)


def _rules(ports: Iterable[int], share: float) -> Iterator[tuple[str, ...]]:
    some = () if share >= 1 else ("-m", "statistic", "--mode", "random", "--probability", f"{share:g}")
    for port in ports:
        for side in ("--dport", "--sport"):
            yield ("INPUT", "-p", "tcp", side, str(port), *some, "-j", "DROP")
