"""Finds the variable for which an unknown name was probably written."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

CONFIG = "KAFKA_CONFIG_"
FILE = "_FILE"
PREFIXES = ("KAFKA_", "WORKER_")
# Similarity of the names after the prefix. Misspelt names score 0.82 and more; names of Kubernetes, of Kafka's own
# scripts and of other programs score 0.79 and less. tests/unit/test_settings_names.py has the table.
_MISSPELT = 0.81
# The same for the whole name if the prefix is misspelt too. Such a name is more often that of another program.
_WHOLE = 0.9
_WORD = 0.8  # similarity of a misspelt prefix, or of a misspelt _FILE
_LEAST_PART = 5  # characters of a part of a name; shorter ones, such as PORT and ID, mean too much
_SYNONYMS = {
    "KAFKA_DLQ": "KAFKA_DEAD_LETTER_TOPIC",
    "KAFKA_DLQ_TOPIC": "KAFKA_DEAD_LETTER_TOPIC",
    "KAFKA_ANSWER_TOPIC": "KAFKA_ACK_TOPIC",
    "KAFKA_RESPONSE_TOPIC": "KAFKA_ACK_TOPIC",
    "KAFKA_BROKERS": "KAFKA_BOOTSTRAP_SERVER",
    "WORKER_RETRIES": "WORKER_MAX_ATTEMPTS",
    "WORKER_MAX_RETRIES": "WORKER_MAX_ATTEMPTS",
}


def has_prefix(variable: str) -> bool:
    """Return whether the name has one of our prefixes, perhaps misspelt."""
    return _with_prefix(variable) is not None


def meant_by(variable: str, environ: Mapping[str, str], names: Collection[str]) -> str | None:
    """Return the variable of ours, or its ``*_FILE``, for which this unknown name was probably written, or None."""
    return _misspelt(variable, names) or _partial(variable, environ, names)


def _with_prefix(variable: str) -> str | None:
    """Return the name with its prefix corrected if that is misspelt, or None if it has another one."""
    if variable.startswith(PREFIXES):
        return variable
    word, _, rest = variable.partition("_")
    ours = [prefix.rstrip("_") for prefix in PREFIXES]
    found = difflib.get_close_matches(word, ours, n=1, cutoff=_WORD) if word.isalpha() else []
    return f"{found[0]}_{rest}" if found else None


def _misspelt(variable: str, names: Collection[str]) -> str | None:
    """Return the variable of ours that this name resembles, or None."""
    stem = variable.removesuffix(FILE)
    if not variable.startswith(PREFIXES):
        corrected = _with_prefix(stem) or stem
        if corrected.startswith(CONFIG):
            return f"{CONFIG}<KEY>"
        return next(iter(difflib.get_close_matches(stem, names, n=1, cutoff=_WHOLE)), None)
    start, _, last = variable.rpartition("_")
    if start in names and _alike(last, FILE.lstrip("_")) >= _WORD:
        return start + FILE
    return nearest(stem, names)


def _partial(variable: str, environ: Mapping[str, str], names: Iterable[str]) -> str | None:
    """Return the unset variable of ours that this name says in part or in other words, or None.

    If ours is set, the name belongs to another program.
    """
    stem = variable.removesuffix(FILE)
    prefix, _, part = stem.partition("_")
    wholes = [name for name in names if name.startswith(f"{prefix}_") and _is_part(part, name.partition("_")[2])]
    meant = _SYNONYMS.get(stem) or max(wholes, key=lambda name: _alike(stem, name), default=None)
    if meant is None or any(environ.get(name, "").strip() for name in (meant, meant + FILE)):
        return None
    return meant


def _is_part(part: str, whole: str) -> bool:
    """Return whether these are the last words of a name, or all with the last one cut off."""
    cut_off = whole.startswith(part) and "_" not in whole[len(part) :]
    return len(part) >= _LEAST_PART and (cut_off or whole.endswith(f"_{part}"))


def _alike(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def nearest(variable: str, names: Iterable[str], cutoff: float = _MISSPELT) -> str | None:
    """Return the variable of ours that this name resembles, or None."""
    prefix = next(prefix for prefix in PREFIXES if variable.startswith(prefix))
    ours = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    rest = variable.removeprefix(prefix)
    found = difflib.get_close_matches(rest, ours, n=1, cutoff=cutoff)
    if found:
        return prefix + found[0]
    # KAFKA_CONF_SASL_PASSWORD: only the first word is misspelt.
    word, separator, _ = rest.partition("_")
    return f"{CONFIG}<KEY>" if separator and _alike(word, "CONFIG") >= cutoff else None
