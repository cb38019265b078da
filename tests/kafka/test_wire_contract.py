"""The producers and consumers of docs/reference/wire-contract.md work as they are printed.

    E2E_LONG=1 pytest -n 0 tests/kafka/test_wire_contract.py

This also runs the programs in Java and Go, if their tools are installed, and downloads their libraries.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import grpc_tools  # type: ignore[import-untyped]  # it has no types
import pytest

from tests.long_form import LONG
from tests.unit.documents import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
NAMES = ("Ada", "Grace", "Edsger")
PROTO = (f"-I{ROOT / 'proto'}", str(ROOT / "proto/task.proto"))
PROTOC = (sys.executable, "-m", "grpc_tools.protoc", *PROTO)
PROTOBUF_VERSION = "4.35.1"
PROTOC_PLATFORM = "linux-x86_64"
GO_MODULES = ("github.com/twmb/franz-go@v1.22.2", "google.golang.org/protobuf@latest")
PROTOC_GEN_GO = "google.golang.org/protobuf/cmd/protoc-gen-go@latest"

java = pytest.mark.skipif(not (LONG and shutil.which("javac") and shutil.which("mvn")), reason="long form, with a JDK")
go = pytest.mark.skipif(not (LONG and shutil.which("go")), reason="long form, with Go")


def save(site: Site, folder: Path, language: str) -> None:
    """Write the page's programs in this language, with this site's broker and topics."""
    for block in blocks("docs/reference/wire-contract.md"):
        if block.language == language and block.title:
            code = block.code.replace("127.0.0.1:9092", site.bootstrap)
            code = code.replace('"requests"', f'"{site.requests}"').replace('"answers"', f'"{site.ack}"')
            path = folder / block.title
            path.parent.mkdir(exist_ok=True)
            path.write_text(code, encoding="utf-8")


def run(folder: Path, *command: str, **environment: str) -> list[str]:
    """Return the lines that a command prints. This project is not on its path, as for a reader of the page."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env=given | environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def in_python(folder: Path) -> tuple[list[str], list[str]]:
    run(folder, *PROTOC, "--python_out=.")
    return run(folder, sys.executable, "produce.py"), run(folder, sys.executable, "consume.py")


def in_java(folder: Path) -> tuple[list[str], list[str]]:
    compiler = f"protoc:{PROTOBUF_VERSION}:exe:{PROTOC_PLATFORM}"  # the one for Python cannot write Java
    for artifact in (compiler, f"protobuf-java:{PROTOBUF_VERSION}"):
        maven = ("mvn", "--batch-mode", "dependency:copy", f"-Dartifact=com.google.protobuf:{artifact}")
        run(folder, *maven, "-DoutputDirectory=.")
    (protoc,) = folder.glob("protoc-*.exe")
    protoc.chmod(0o755)
    run(folder, str(protoc), *PROTO, f"-I{Path(grpc_tools.__file__).with_name('_proto')}", "--java_out=.")
    jars = [str(jar) for jar in (*(ROOT / ".runtime").glob("kafka-*/**/*.jar"), *folder.glob("*.jar"))]
    path = ":".join([".", *jars])
    run(folder, "javac", "-cp", path, *[source.name for source in folder.glob("*.java")])
    return run(folder, "java", "-cp", path, "Produce", *NAMES), run(folder, "java", "-cp", path, "Consume", "3")


def in_go(folder: Path) -> tuple[list[str], list[str]]:
    tools = {"GOBIN": str(folder / "bin"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    run(folder, "go", "mod", "init", "example")
    run(folder, "go", "install", PROTOC_GEN_GO, **tools)
    options = ("--go_out=.", "--go_opt=module=example", "--go_opt=Mtask.proto=example/taskpb")
    run(folder, *PROTOC, *options, **tools)
    run(folder, "go", "get", *GO_MODULES)
    run(folder, "go", "mod", "tidy")
    return run(folder, "go", "run", "./produce", *NAMES), run(folder, "go", "run", "./consume", "3")


@pytest.mark.parametrize(
    ("language", "programs", "form"),
    [
        ("python", in_python, "b'{name}' OK b'Hello, {name}!'"),
        pytest.param("java", in_java, "{name} OK Hello, {name}!", marks=java),
        pytest.param("go", in_go, "{name} OK Hello, {name}!", marks=go),
    ],
    ids=["python", "java", "go"],
)
def test_the_programs_of_the_page_produce_and_consume(
    site: Callable[..., Site],
    tmp_path: Path,
    language: str,
    programs: Callable[[Path], tuple[list[str], list[str]]],
    form: str,
) -> None:
    """Three requests are produced, each is answered once, and the answers carry the requests' keys."""
    place = site()
    save(place, tmp_path, language)
    place.start(cwd=ROOT, WORKER_HANDLER="examples.hello:greet", WORKER_HANDLER_KWARGS="{}")

    origins, answers = programs(tmp_path)

    assert len(set(origins)) == 3
    assert sorted(answers) == sorted(form.format(name=name) for name in NAMES)
