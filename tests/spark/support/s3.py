"""An S3 server on this machine, and the settings with which Spark reaches it.

``moto_server`` must be on the PATH: ``pip install 'moto[s3]' flask flask-cors``. Spark downloads the jars on first use.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import urllib.request
from typing import TYPE_CHECKING

from tests.kafka.support.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUCKET = "bucket"
SERVER = shutil.which("moto_server")
# Without the 600 MB of "bundle": the parts named here are enough, and Spark already has netty.
_SETTINGS = """
spark.jars.packages org.apache.hadoop:hadoop-aws:3.4.1,software.amazon.awssdk:s3-transfer-manager:2.25.53,{jdbc}
spark.jars.excludes software.amazon.awssdk:bundle,io.netty:*
spark.hadoop.fs.s3a.endpoint {endpoint}
spark.hadoop.fs.s3a.endpoint.region us-east-1
spark.hadoop.fs.s3a.path.style.access true
spark.hadoop.fs.s3a.connection.ssl.enabled false
spark.hadoop.fs.s3a.access.key test
spark.hadoop.fs.s3a.secret.key test
spark.sql.catalog.store org.apache.iceberg.spark.SparkCatalog
spark.sql.catalog.store.type jdbc
spark.sql.catalog.store.uri jdbc:sqlite:{folder}/catalog.db?journal_mode=WAL&busy_timeout=60000
spark.sql.catalog.store.jdbc.schema-version V1
spark.sql.catalog.store.cache-enabled false
spark.sql.catalog.store.warehouse s3a://{bucket}/warehouse
spark.driver.host 127.0.0.1
spark.sql.shuffle.partitions 2
"""
_JDBC = "org.xerial:sqlite-jdbc:3.47.1.0"


class Store:
    """The server, with one bucket."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        """Create the bucket. Return whether that succeeded, so whether the server runs."""
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5):
            return True
        return False

    def keys(self, pattern: str) -> list[str]:
        """Return the names of all objects that match this pattern anywhere."""
        with urllib.request.urlopen(f"{self.endpoint}/{BUCKET}?list-type=2&max-keys=100000", timeout=30) as reply:
            page = reply.read().decode()
        assert "<IsTruncated>true" not in page
        return [key for key in re.findall(r"<Key>([^<]+)</Key>", page) if re.search(pattern, key)]

    def configure(self, folder: Path) -> dict[str, str]:
        """Return the variables with which Spark finds the server."""
        settings = _SETTINGS.format(endpoint=self.endpoint, folder=folder, bucket=BUCKET, jdbc=_JDBC)
        (folder / "spark-defaults.conf").write_text(settings)
        return {"SPARK_CONF_DIR": str(folder)}


@contextlib.contextmanager
def store(folder: Path) -> Iterator[Store]:
    """Run a server, and remove it with its content at the end."""
    assert SERVER is not None
    port = free_port()
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen([SERVER, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        one = Store(port)
        until(one.ready, (folder / "s3.log").read_text)
        yield one
    finally:
        server.kill()
        server.wait()
