"""The bytes that a program has received from a server, as the kernel counts them per connection.

They are read with netlink (``sock_diag``), so every language and client library is supported at no cost to it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_DUMP_REQUEST = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_DONE = 3
_ESTABLISHED = 1 << 1
_INFO = 2  # INET_DIAG_INFO: the attribute with tcp_info
_INFO_BIT = 1 << (_INFO - 1)
_RECEIVED_AT = 128  # of tcpi_bytes_received in tcp_info
_HEAD = struct.Struct("=LHHLL")  # nlmsghdr
_REQUEST = struct.Struct("=BBBxL48x")  # inet_diag_req_v2: family, protocol, extensions, states, an empty socket id
_MESSAGE = struct.Struct("=BBBB2s2s16s16sL8sLLLLL")  # inet_diag_msg
_ATTRIBUTE = struct.Struct("=HH")


def received(pids: Iterable[int], port: int) -> int:
    """Return the bytes that these processes received over their open connections to a local port."""
    mine = {inode for pid in pids for inode in _inodes(pid)}
    return sum(
        count
        for family in (socket.AF_INET, socket.AF_INET6)  # Java uses IPv6 sockets for all addresses
        for inode, remote, count in _connections(family)
        if remote == port and inode in mine
    )


def _inodes(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(link.readlink())
                if target.startswith("socket:["):
                    yield int(target[8:-1])


def _connections(family: int) -> Iterator[tuple[int, int, int]]:
    """Yield inode, remote port and received bytes of every established TCP connection."""
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, _INFO_BIT, _ESTABLISHED)
    head = _HEAD.pack(_HEAD.size + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.send(head + request)
        while True:
            data = netlink.recv(1 << 20)
            while data:
                length, kind, *_ = _HEAD.unpack_from(data)
                if kind != _SOCK_DIAG_BY_FAMILY:
                    if kind == _DONE:
                        return
                    raise OSError("the kernel refuses to list its sockets")
                yield _connection(data[_HEAD.size : length])
                data = data[_aligned(length) :]


def _connection(message: bytes) -> tuple[int, int, int]:
    fields = _MESSAGE.unpack_from(message)
    attributes, count = message[_MESSAGE.size :], 0
    while len(attributes) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        if kind == _INFO and length >= _ATTRIBUTE.size + _RECEIVED_AT + 8:
            (count,) = struct.unpack_from("=Q", attributes, _ATTRIBUTE.size + _RECEIVED_AT)
        attributes = attributes[_aligned(max(length, _ATTRIBUTE.size)) :]
    return fields[-1], int.from_bytes(fields[5], "big"), count


def _aligned(length: int) -> int:
    return (length + 3) & ~3
