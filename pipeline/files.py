"""Small files and folders of the lake, wherever it lies: by Hadoop's file systems, as Spark itself reaches them."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


class Entry(NamedTuple):
    """What stands in a folder."""

    name: str
    uri: str
    is_folder: bool


class Files:
    """The file systems that the session reaches. Paths are Hadoop URIs or local paths."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to Hadoop's classes
        self._configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001

    def _open(self, uri: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        return path.getFileSystem(self._configuration), path

    def exists(self, uri: str) -> bool:
        """Whether there is a file or folder."""
        system, path = self._open(uri)
        return bool(system.exists(path))

    def entries(self, uri: str) -> list[Entry]:
        """What stands in a folder, by name; nothing if there is no such folder."""
        system, path = self._open(uri)
        if not system.exists(path):
            return []
        entries = [
            Entry(str(s.getPath().getName()), str(s.getPath().toString()), bool(s.isDirectory()))
            for s in system.listStatus(path)
        ]
        return sorted(entries)

    def glob(self, pattern: str) -> list[str]:
        """The paths that fit a pattern, as URIs."""
        system, path = self._open(pattern)
        found = system.globStatus(path)
        paths = [] if found is None else self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(found)
        return [str(place.toString()) for place in paths]

    def size(self, uri: str) -> int:
        """Bytes of a file, or of all files in a folder."""
        system, path = self._open(uri)
        return int(system.getContentSummary(path).getLength())

    def read(self, uri: str) -> str:
        """A small text. JobError if it is not there."""
        system, path = self._open(uri)
        if not system.exists(path):
            raise JobError(f"{uri} is not there")
        stream = system.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def read_json(self, uri: str) -> dict[str, Any]:
        """The object in a small file. JobError if it is not there."""
        content: dict[str, Any] = json.loads(self.read(uri))
        return content

    def write(self, uri: str, text: str) -> None:
        """Write or replace a small text: another reader sees the old one or the new one, or for a moment none."""
        self.write_bytes(uri, text.encode())

    def write_bytes(self, uri: str, content: bytes) -> None:
        """The same for bytes."""
        system, path = self._open(uri)
        # Hidden from whoever lists the folder for tables.
        _, draft = self._open(f"{path.getParent().toString()}/_{uuid.uuid4().hex}")
        stream = system.create(draft)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        if not system.rename(draft, path):  # Hadoop's rename does not replace
            system.delete(path, False)  # noqa: FBT003 - Java knows no names of arguments
            system.rename(draft, path)

    def write_json(self, uri: str, content: Mapping[str, Any]) -> None:
        """Write or replace a small file with an object."""
        self.write(uri, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def rename(self, uri: str, new: str) -> None:
        """Move a file or folder. JobError if there is something at the new place, or nothing at the old one."""
        system, path = self._open(uri)
        _, target = self._open(new)
        # Into an existing folder Hadoop would move, not over it.
        if system.exists(target) or not system.rename(path, target):
            raise JobError(f"{uri} cannot be renamed to {new}")

    def delete(self, uri: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing happens if there is none."""
        system, path = self._open(uri)
        system.delete(path, True)  # noqa: FBT003
