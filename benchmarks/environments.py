"""What peers need that this project does not: made under ``.runtime/peers`` on first use, each apart from the others.

Deleting that folder is always right. Whatever cannot be had raises MissingError with the reason.
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
PYTHON_PEERS = {
    "arroyo": ("sentry-arroyo==2.48.0", f"protobuf=={version('protobuf')}"),
    "celery": ("celery[redis]==5.7.0",),
    "dramatiq": ("dramatiq[redis]==2.2.1",),
}
JARS = (
    ("io.confluent.parallelconsumer", "parallel-consumer-core", "0.5.3.3"),
    ("com.google.protobuf", "protobuf-java", "4.35.0"),
)
REDIS_PACKAGES = ("redis-tools", "redis-server", "libatomic1", "libjemalloc2", "liblzf1", "liblua5.1-0")
_SOURCE = ROOT / "benchmarks/foreign/ParallelPeer.java"
_SECONDS = 600.0  # for one download or compilation


class MissingError(Exception):
    """A peer cannot be had here."""


class Environments:
    """``fetch``: whether what is missing may be downloaded."""

    def __init__(self, *, fetch: bool) -> None:
        self._fetch = fetch
        self._failed: dict[str, MissingError] = {}

    def python(self, name: str) -> Path:
        """The interpreter of a Python peer."""
        folder = self._made(name, " ".join(PYTHON_PEERS[name]), lambda folder: _virtual(folder, PYTHON_PEERS[name]))
        return folder / "bin/python"

    @functools.cache  # noqa: B019 - lives as long as the suite
    def versions(self, name: str) -> str:
        """The peer and what it stands on, as installed."""
        code = (
            "from importlib.metadata import distributions as d; "
            "print(', '.join(sorted({f'{x.name} {x.version}' for x in d()} )))"
        )
        everything = _run([str(self.python(name)), "-I", "-c", code]).strip().split(", ")
        tools = ("pip ", "setuptools ")
        return ", ".join(one for one in everything if not one.startswith(tools))

    def classpath(self) -> str:
        """Of the Java peer, compiled."""
        wanted = " ".join(":".join(jar) for jar in JARS) + _SOURCE.read_text(encoding="utf-8")
        folder = self._made("parallel-consumer", wanted, _jars)
        return f"{folder}/classes:{folder}/jars/*"

    def redis(self) -> tuple[list[str], dict[str, str]]:
        """The command of a Redis server and the variables it needs: the machine's, or Debian's, unpacked."""
        if found := shutil.which("redis-server"):
            return [found], {}
        folder = self._made("redis", " ".join(REDIS_PACKAGES), _debian)
        libraries = {str(library.parent) for library in folder.glob("usr/lib/**/*.so*")}
        return [str(folder / "usr/bin/redis-server")], {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}

    def _made(self, name: str, wanted: str, make: Callable[[Path], None]) -> Path:
        """The folder of that name, made anew unless it was finished for just what is wanted."""
        folder, stamp = FOLDER / name, FOLDER / f"{name}.made"
        if folder.is_dir() and stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
            return folder
        if not self._fetch:
            raise MissingError("not fetched yet: the full form does that")
        if name in self._failed:  # what failed once is not tried again in this run
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
    """What a command prints. MissingError with its last line if it fails or is not there."""
    try:
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=_SECONDS)
    except FileNotFoundError:
        raise MissingError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise MissingError(f"{Path(command[0]).name} did not end within {_SECONDS:.0f} s") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or error.stdout.strip() or "it said nothing").splitlines()[-1]
        raise MissingError(f"{Path(command[0]).name} failed: {last[:200]}") from None
    return done.stdout


def _virtual(folder: Path, packages: Sequence[str]) -> None:
    _run([sys.executable, "-I", "-m", "venv", str(folder)])
    _run([str(folder / "bin/python"), "-I", "-m", "pip", "install", "--no-input", "--quiet", *packages])


def _jars(folder: Path) -> None:
    """By the Ivy that pyspark carries, as scripts/setup does it; then the compiler."""
    java = str(ROOT / ".runtime/java/bin/java")
    ivy = next(Path(sys.prefix).glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"), None)
    if ivy is None:
        raise MissingError("Ivy, which pyspark carries, is not there: run scripts/setup")
    compiler = _compiler()
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
    _run([compiler, "-d", str(folder / "classes"), "-cp", f"{folder}/jars/*", str(_SOURCE)])


def _compiler() -> str:
    """A JDK's javac: the one beside the Java that is used, or on the PATH."""
    beside = ROOT / ".runtime/java/bin/javac"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("javac")
    if found is None:
        raise MissingError("there is no javac: install a JDK from 17 to 23")
    return found


def _debian(folder: Path) -> None:
    """Debian's packages, unpacked and not installed: that needs no rights."""
    _run(["apt-get", "download", *REDIS_PACKAGES], folder)
    for package in folder.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(folder)])
        package.unlink()
