"""Small files and folders of the lake, through the Hadoop file systems that Spark uses."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


_RENAMING = {"file", "hdfs", "viewfs"}  # file systems with an atomic rename, which is the way to replace a file


class Entry(NamedTuple):
    """A file or folder within a folder."""

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
        """Return whether there is a file or folder."""
        system, path = self._open(uri)
        return bool(system.exists(path))

    def entries(self, uri: str) -> list[Entry]:
        """Return the entries of a folder, by name. Empty if the folder does not exist."""
        system, path = self._open(uri)
        if not system.exists(path):
            return []
        entries = [
            Entry(str(s.getPath().getName()), str(s.getPath().toString()), bool(s.isDirectory()))
            for s in system.listStatus(path)
        ]
        return sorted(entries)

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern, as URIs."""
        system, path = self._open(pattern)
        found = system.globStatus(path)
        paths = [] if found is None else self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(found)
        return [str(place.toString()) for place in paths]

    def size(self, uri: str) -> int:
        """Return the bytes of a file, or of all files in a folder."""
        system, path = self._open(uri)
        return int(system.getContentSummary(path).getLength())

    def read(self, uri: str) -> str:
        """Return a small text. Raise JobError if the file does not exist."""
        system, path = self._open(uri)
        if not system.exists(path):
            raise JobError(f"{uri} does not exist")
        stream = system.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def read_json(self, uri: str) -> dict[str, Any]:
        """Return the object in a small JSON file. Raise JobError if the file does not exist or is damaged."""
        try:
            content: dict[str, Any] = json.loads(self.read(uri))
        except ValueError as error:
            raise JobError(f"{uri} is damaged ({error}): restore it from a backup") from error
        return content

    def write(self, uri: str, text: str) -> None:
        """Write or replace a small text. Other readers see the old text, the new one, or, for a moment, none."""
        self.write_bytes(uri, text.encode())

    def write_bytes(self, uri: str, content: bytes) -> None:
        """Write or replace small content in the same way."""
        system, path = self._open(uri)
        if str(system.getScheme()) not in _RENAMING:
            self._create(system, path, content)  # an object store replaces a file at once, but cannot rename one
            return
        # Hidden from readers that list the folder for tables.
        _, draft = self._open(f"{path.getParent().toString()}/_{uuid.uuid4().hex}")
        self._create(system, draft, content)
        if not system.rename(draft, path):  # Hadoop's rename does not replace
            system.delete(path, False)  # noqa: FBT003 - Java has no keyword arguments
            system.rename(draft, path)

    def _create(self, system: Any, path: Any, content: bytes) -> None:
        stream = system.create(path, True)  # noqa: FBT003 - Java has no keyword arguments
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def write_json(self, uri: str, content: Mapping[str, Any]) -> None:
        """Write or replace a small JSON file with an object."""
        self.write(uri, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def rename(self, uri: str, new: str) -> None:
        """Move a file or folder. Raise JobError if the new path exists, or the old one does not."""
        system, path = self._open(uri)
        _, target = self._open(new)
        # If the new path were a folder, Hadoop would move into it.
        if system.exists(target) or not system.rename(path, target):
            raise JobError(f"{uri} cannot be renamed to {new}")

    def delete(self, uri: str) -> None:
        """Remove a file, or a folder with its contents. Do nothing if it does not exist."""
        system, path = self._open(uri)
        system.delete(path, True)  # noqa: FBT003
