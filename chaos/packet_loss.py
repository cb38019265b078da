"""Packet loss with iptables in a private network namespace. A proxy cannot simulate it.

The connection stays open, and the kernel retransmits lost packets at growing intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos import procutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def start_loss(ports: Iterable[int], share: float) -> None:
    """Drop this share of the packets to and from these ports. Call ``procutil.private_machine`` first."""
    for rule in _rules(ports, share):
        if not procutil.succeeds("iptables", "-w", "-A", *rule):
            raise OSError(f"iptables rejects the rule {' '.join(rule)}")


def stop_loss(ports: Iterable[int], share: float) -> None:
    """Undo ``start_loss`` with the same arguments. Safe to call twice."""
    for rule in _rules(ports, share):
        procutil.succeeds("iptables", "-w", "-D", *rule)


def _rules(ports: Iterable[int], share: float) -> Iterator[tuple[str, ...]]:
    match = () if share >= 1 else ("-m", "statistic", "--mode", "random", "--probability", f"{share:g}")
    for port in ports:
        for side in ("--dport", "--sport"):
            yield ("INPUT", "-p", "tcp", side, str(port), *match, "-j", "DROP")
