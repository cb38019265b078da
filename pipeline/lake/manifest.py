"""The manifest of a job and its metadata: the planned requests, and the id of the run derived from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.lake.files import Files
from pipeline.lake.tables import table_exists

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.settings import Common

METADATA = "_manifest.json"
_KEYS = ("sequence", "source_id")
_LOWER = 2**32 - 1


class Manifest(NamedTuple):
    """The metadata beside a manifest.

    ``digest`` covers all rows, in any order. ``run`` is derived from it: it names these rows in the requests and in
    their answers. Manifests of earlier versions have no ``run``.
    """

    job: str
    rows: int
    digest: str
    parts: int
    columns: dict[str, str | None]
    created: str
    run: str = ""
    replaces: tuple[str, ...] = ()  # earlier runs of the job in this lake
    key_digest: str = ""  # a digest of sequences and ids only, which an audit can check without reading the payloads


def run_of(digest: str) -> str:
    """Return the id of the run with the rows of this digest. It begins with ``r``, so it is never a number."""
    return f"r{digest}"


def recorded_manifest(spark: SparkSession, settings: Common) -> Manifest | None:
    """Return the metadata of the job's manifest, or None if the job is not planned or has no metadata."""
    if not table_exists(spark, settings.table("manifest")):
        return None
    files, path = Files(spark), f"{settings.table('manifest').folder}/{METADATA}"
    if not files.exists(path):
        return None
    content = files.read_json(path)
    return Manifest(**{**content, "replaces": tuple(content.get("replaces", ()))})


def digests_of(manifest: DataFrame) -> tuple[str, str]:
    """Return the digest of all rows, and that of their sequences and ids only.

    Each is the sum of a hash of each row: the same for the same rows in any order, and different for other rows.
    """
    rows, keys = _halves("sequence", "source_id", "payload", "deadline"), _halves(*_KEYS)
    summed: Any = manifest.agg(*rows, *keys).first()
    return _in_hex(*summed[:2]), _in_hex(*summed[2:])


def key_digest_of(manifest: DataFrame) -> tuple[int, str]:
    """Return the number of rows, and the digest of their sequences and ids."""
    summed: Any = manifest.agg(F.count(F.lit(1)), *_halves(*_KEYS)).first()
    return int(summed[0]), _in_hex(*summed[1:])


def _halves(*columns: str) -> tuple[Column, Column]:
    """Return the sums of the upper and lower 32 bits of each row's hash: they fit into longs, unlike their sum."""
    hashed = F.xxhash64(*columns)
    return F.sum(F.shiftright(hashed, 32)), F.sum(hashed.bitwiseAND(_LOWER))


def _in_hex(upper: int | None, lower: int | None) -> str:
    return f"{((upper or 0) * 2**32 + (lower or 0)) % 2**64:016x}"
