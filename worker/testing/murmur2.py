"""The hash by which Kafka's Java clients choose the partition of a key."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WORD = 4


def murmur2(data: bytes) -> int:
    """Return the hash of ``org.apache.kafka.common.utils.Utils.murmur2``, unsigned."""
    result = _SEED ^ len(data)
    whole = len(data) - len(data) % _WORD
    for at in range(0, whole, _WORD):
        word = int.from_bytes(data[at : at + _WORD], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        result = result * _M & _MASK ^ word
    if rest := data[whole:]:
        result = (result ^ int.from_bytes(rest, "little")) * _M & _MASK
    result = (result ^ result >> 13) * _M & _MASK
    return result ^ result >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition in which ``murmur2_random`` puts a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
