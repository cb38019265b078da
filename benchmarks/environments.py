"""The environments of the peers, created under ``.runtime/peers`` on first use.

The folder can be deleted at any time. A failed installation raises MissingError with the reason.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.broker import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FOLDER = ROOT / ".runtime/peers"
HIREDIS = "hiredis==3.5.0"  # the parser in C that the documentation of redis-py recommends
PYTHON_PEERS = {
    "arroyo": ("sentry-arroyo==2.48.0", f"protobuf=={version('protobuf')}"),
    "celery": ("celery[redis]==5.7.0", HIREDIS),
    "dramatiq": ("dramatiq[redis]==2.2.1", HIREDIS),
    "ray": ("ray==2.60.0",),
}
JARS = (
    ("io.confluent.parallelconsumer", "parallel-consumer-core", "0.5.3.3"),
    ("com.google.protobuf", "protobuf-java", "4.35.0"),
)
REDIS_PACKAGES = ("redis-tools", "redis-server", "libatomic1", "libjemalloc2", "liblzf1", "liblua5.1-0")
RABBITMQ_PACKAGES = (
    "rabbitmq-server",
    *("libsctp1", "erlang-base", "erlang-asn1", "erlang-crypto", "erlang-eldap", "erlang-ftp", "erlang-inets"),
    *("erlang-mnesia", "erlang-os-mon", "erlang-parsetools", "erlang-public-key", "erlang-runtime-tools"),
    *("erlang-snmp", "erlang-ssl", "erlang-syntax-tools", "erlang-tftp", "erlang-tools", "erlang-xmerl"),
)
_FOREIGN = ROOT / "benchmarks/foreign"
_PARALLEL = (_FOREIGN / "ParallelPeer.java", _FOREIGN / "Answering.java")
_SHARE = (_FOREIGN / "SharePeer.java", _FOREIGN / "Answering.java")
_SECONDS = 600.0  # for one download or compilation


class MissingError(Exception):
    """A peer cannot be installed here."""


class Environments:
    """The installed peers. ``fetch`` allows the download of missing ones."""

    def __init__(self, *, fetch: bool) -> None:
        self._fetch = fetch
        self._failed: dict[str, MissingError] = {}

    def python(self, name: str) -> Path:
        """Return the interpreter of a Python peer."""
        folder = self._made(name, " ".join(PYTHON_PEERS[name]), lambda folder: _virtual(folder, PYTHON_PEERS[name]))
        return folder / "bin/python"

    @functools.cache  # noqa: B019 - lives as long as the suite
    def versions(self, name: str) -> str:
        """Return the installed versions of the peer and its dependencies."""
        code = (
            "from importlib.metadata import distributions as d; "
            "print(', '.join(sorted({f'{x.name} {x.version}' for x in d()} )))"
        )
        everything = _run([str(self.python(name)), "-I", "-c", code]).strip().split(", ")
        tools = ("pip ", "setuptools ")
        return ", ".join(one for one in everything if not one.startswith(tools))

    def classpath(self) -> str:
        """Return the class path of parallel-consumer with the suite's tasks."""
        wanted = " ".join(":".join(jar) for jar in JARS) + _text(_PARALLEL)
        folder = self._made("parallel-consumer", wanted, _jars)
        return f"{folder}/classes:{folder}/jars/*"

    def share_classpath(self) -> str:
        """Return the class path of the share consumers with the suite's tasks: the broker's client and a peer's jar."""
        self.classpath()  # provides that jar
        jars = [*map(str, FOLDER.glob("parallel-consumer/jars/protobuf-java-*.jar")), f"{_kafka_jars()}/*"]
        folder = self._made("share-group", _text(_SHARE), lambda folder: _compile(folder, ":".join(jars), _SHARE))
        return ":".join([f"{folder}/classes", *jars])

    def redis(self) -> tuple[list[str], dict[str, str]]:
        """Return the command of a Redis server and its variables: the machine's own server, or Debian's."""
        if found := shutil.which("redis-server"):
            return [found], {}
        folder = self._made("redis", " ".join(REDIS_PACKAGES), lambda folder: _debian(folder, REDIS_PACKAGES))
        libraries = {str(library.parent) for library in folder.glob("usr/lib/**/*.so*")}
        return [str(folder / "usr/bin/redis-server")], {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}

    def rabbitmq(self) -> Path:
        """Return the root under which Debian's RabbitMQ and Erlang are unpacked."""
        return self._made("rabbitmq", " ".join(RABBITMQ_PACKAGES), _rabbitmq)

    def _made(self, name: str, wanted: str, make: Callable[[Path], None]) -> Path:
        """Return the folder of that name. Create it again unless it was completed for exactly these versions."""
        folder, stamp = FOLDER / name, FOLDER / f"{name}.made"
        if folder.is_dir() and stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
            return folder
        if not self._fetch:
            raise MissingError("not fetched yet: the full form does that")
        if name in self._failed:  # a failed one is not tried again in this run
            raise self._failed[name]
        stamp.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            make(folder)
        except MissingError as error:
            self._failed[name] = error
            raise
        stamp.write_text(wanted, encoding="utf-8")
        return folder


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    """Return the output of a command. Raise MissingError with its last line if it fails or does not exist."""
    try:
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=_SECONDS)
    except FileNotFoundError:
        raise MissingError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise MissingError(f"{Path(command[0]).name} did not end within {_SECONDS:.0f} s") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or error.stdout.strip() or "no output").splitlines()[-1]
        raise MissingError(f"{Path(command[0]).name} failed: {last[:200]}") from None
    return done.stdout


def _virtual(folder: Path, packages: Sequence[str]) -> None:
    _run([sys.executable, "-I", "-m", "venv", str(folder)])
    _run([str(folder / "bin/python"), "-I", "-m", "pip", "install", "--no-input", "--quiet", *packages])


def _jars(folder: Path) -> None:
    """Download with the Ivy of pyspark, as scripts/setup does, and compile."""
    java = str(ROOT / ".runtime/java/bin/java")
    ivy = next(Path(sys.prefix).glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"), None)
    if ivy is None:
        raise MissingError("Ivy, which comes with pyspark, is missing: run scripts/setup")
    _compiler()
    for organisation, module, revision in JARS:
        _run(
            [
                *(java, f"-Divy.default.ivy.user.dir={folder}/ivy", "-cp", str(ivy), "org.apache.ivy.Main"),
                *("-confs", "default", "-dependency", organisation, module, revision, "-types", "jar", "bundle"),
                *("-retrieve", f"{folder}/jars/[artifact]-[revision].[ext]"),
            ]
        )
        if not list(folder.glob(f"jars/{module}-*.jar")):
            raise MissingError(f"{module} {revision} could not be downloaded")
    shutil.rmtree(folder / "ivy", ignore_errors=True)
    _compile(folder, f"{folder}/jars/*", _PARALLEL)


def _kafka_jars() -> Path:
    """Return the folder of the broker's jars."""
    found = sorted(ROOT.glob(".runtime/kafka-*/kafka-clients-*.jar"))
    if not found:
        raise MissingError("the broker's jars are missing: run scripts/setup")
    return found[-1].parent


def _compile(folder: Path, classpath: str, sources: Sequence[Path]) -> None:
    _run([_compiler(), "-d", str(folder / "classes"), "-cp", classpath, *map(str, sources)])


def _text(sources: Sequence[Path]) -> str:
    return "".join(source.read_text(encoding="utf-8") for source in sources)


def _compiler() -> str:
    """Return a javac: the one beside the Java in use, or the one on the PATH."""
    bundled = ROOT / ".runtime/java/bin/javac"
    found = str(bundled) if os.access(bundled, os.X_OK) else shutil.which("javac")
    if found is None:
        raise MissingError("there is no javac: install a JDK from 17 to 23")
    return found


def _rabbitmq(folder: Path) -> None:
    """Unpack Debian's packages. Erlang's start script contains the path of a normal installation."""
    _debian(folder, RABBITMQ_PACKAGES)
    start = folder / "usr/lib/erlang/bin/erl"
    text = start.read_text(encoding="utf-8").replace("ROOTDIR=/usr/lib/erlang", f"ROOTDIR='{folder}/usr/lib/erlang'")
    start.write_text(text, encoding="utf-8")


def _debian(folder: Path, packages: Sequence[str]) -> None:
    """Unpack Debian's packages without installing them, which requires no special rights."""
    _run(["apt-get", "download", *packages], folder)
    for package in folder.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(folder)])
        package.unlink()
