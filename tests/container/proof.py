"""What scripts/container-proof shows about the built image. Each check's docstring is printed when it holds."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.container.sandbox import Container, Image, running
from tests.container.traffic import PARTITIONS, Queue
from tests.ports import free_port
from worker.codec import OK, Response

if TYPE_CHECKING:
    from collections.abc import Callable

REQUESTS = 300
STARTS = 3  # of a container, measured
FIRST_TASK_GOAL = 3.0  # seconds from the start of a container to its first task, on an idle machine

# The user's code, mounted over /app. It runs as long as the payload says and records its start in /tmp.
MINE = """
import pathlib, time

def handle(request, context):
    pathlib.Path("/tmp/began").touch()
    time.sleep(float(request.payload))
    return "done"
"""


# ---------------------------------------------------------------- without Kafka


def size(image: Image) -> None:
    """its size, and nothing in it that only building needs"""
    total, ours = _bytes(image.root), _bytes(image.root / "opt/venv") + _bytes(image.root / "app")
    echo(f"image {total / 1e6:.0f} MB, of which the base {(total - ours) / 1e6:.0f} and the worker {ours / 1e6:.0f}")
    (packages,) = (image.root / "opt/venv/lib").glob("python3*/site-packages")
    present = {path.name for path in packages.iterdir()}
    assert not present & {"pip", "setuptools", "pytest", "pyspark", "grpc"}, sorted(present)
    assert list((packages / "worker/__pycache__").glob("*.pyc")), "not compiled at build"


def helps(image: Image) -> None:
    """`worker --help` names the commands"""
    with running(image, command=[*image.entrypoint, "--help"]) as container:
        code = container.wait(30)
        assert code == 0, container.stderr
        for word in ("run", "submit", "status", "dlq", "doctor"):
            assert re.search(rf"\b{word}\b", container.stdout), container.stdout


def confined(image: Image) -> None:
    """it is not root, has no capabilities and can write to /tmp and /dev/shm only"""
    script = (
        "import os, pathlib\n"
        "assert os.getpid() == 1 and os.getuid() == 10001 and os.getgid() == 10001 and not os.getgroups()\n"
        "assert 'CapEff:\\t0000000000000000' in open('/proc/self/status').read()\n"
        "for place in ('/tmp', '/dev/shm'): pathlib.Path(place, 'x').touch()\n"
        "for place in ('/', '/app', '/opt/venv', '/var/tmp', '/root', '/dev'):\n"
        "    try: pathlib.Path(place, 'x').touch()\n"
        "    except OSError: continue\n"
        "    raise SystemExit(f'{place} is writable')\n"
    )
    with running(image, command=["python3", "-c", script]) as container:
        code = container.wait(30)
        assert code == 0, container.stderr


def refuses(image: Image) -> None:
    """`python -m worker run` without a broker in its settings: exit code 2 and one line that names the variable"""
    settings = Queue("unused:9092", "unused").environment("examples.hello:greet")
    del settings["KAFKA_BOOTSTRAP_SERVER"]
    with running(image, settings, command=["python", "-m", "worker", "run"]) as container:
        code = container.wait(30)
        lines = container.stderr.strip().splitlines()
        assert code == 2, (code, container.stderr)
        assert len(lines) == 1, container.stderr
        assert "KAFKA_BOOTSTRAP_SERVER" in lines[0], container.stderr


# ---------------------------------------------------------------- with Kafka


def works(image: Image, queue: Queue) -> None:
    """requests are answered exactly once, probes and metrics answer, PID 1 reaps orphans, SIGTERM ends with 0"""
    queue.submit(f"number {i}" for i in range(REQUESTS))
    port = free_port()
    settings = queue.environment("examples.hello:greet", WORKER_HTTP_PORT=str(port), WORKER_PROCESSES="2")
    with running(image, settings) as container:
        answers = queue.answers(REQUESTS, 60, container.running)
        assert len({(a.origin.partition, a.origin.offset) for a in answers}) == len(answers) == REQUESTS, (
            f"{len(answers)} answers to {REQUESTS} requests\n{container.stderr}{container.stdout}"
        )
        assert {a.outcome for a in answers} == {OK}
        assert {a.result.decode() for a in answers} == {f"Hello, number {i}!" for i in range(REQUESTS)}
        _probes(container, port)
        _reaps(container)
        _stops(container, within=20)


def drains(image: Image, queue: Queue) -> None:
    """the user's code mounted at /app runs; a task that runs at SIGTERM is finished; healthy with the port off"""
    queue.submit(["3"])
    with tempfile.TemporaryDirectory() as code:
        Path(code).chmod(0o755)
        Path(code, "mine.py").write_text(MINE)
        settings = queue.environment("mine:handle", WORKER_HTTP_PORT="0", WORKER_PROCESSES="1")
        with running(image, settings, code=Path(code)) as container:
            _until(lambda: container.file("/tmp/began").exists(), 30, container)
            _healthy(container)
            _stops(container, within=20)
    (answer,) = queue.answers(1, 10)
    assert (answer.outcome, answer.result) == (OK, b"done")


def starts(image: Image, queue: Queue) -> None:
    """a container started for waiting requests runs the first of them in time"""
    took: list[float] = []
    for _ in range(STARTS):
        queue.submit(["somebody"] * PARTITIONS)
        before = time.time()
        with running(
            image, queue.environment("examples.hello:greet", WORKER_HTTP_PORT="0", WORKER_PROCESSES="2")
        ) as container:
            expected = PARTITIONS * (len(took) + 1)
            began = [_began(answer) for answer in queue.answers(expected, 60, container.running)]
            assert len(began) == expected, container.stderr
            took.append(min(at for at in began if at > before) - container.started)
            _stops(container, within=20)
    took.sort()
    echo(f"container start to first task running: {', '.join(f'{seconds:.2f}' for seconds in took)} s")
    # On a busy machine the time depends more on the machine.
    assert took[0] <= FIRST_TASK_GOAL or os.getloadavg()[0] > (os.cpu_count() or 1)


def _began(answer: Response) -> float:
    return answer.started_at.seconds + answer.started_at.nanos / 1e9


def _probes(container: Container, port: int) -> None:
    assert _get(port, "/livez")[0] == 200
    assert _get(port, "/readyz")[0] == 200
    _healthy(container)

    def counted() -> bool:
        rows = re.findall(
            r'^worker_tasks_total\{[^}]*outcome="OK"[^}]*\} (\S+)$', _get(port, "/metrics")[1], re.MULTILINE
        )
        return sum(map(float, rows)) == REQUESTS

    _until(counted, 10, container)


def _healthy(container: Container) -> None:
    how, *check = container.image.healthcheck
    assert how == "CMD"
    result = container.enter(check)
    assert result.returncode == 0, result.stdout + result.stderr


def _reaps(container: Container) -> None:
    """Check that PID 1 reaps an orphan, so that no zombie is left."""
    before = set(container.states())
    result = container.enter(["sh", "-c", "sleep 0.3 & exit 0"])
    assert result.returncode == 0, result.stderr
    _until(lambda: set(container.states()) == before, 10, container)
    assert "orphan.reaped" in container.stdout + container.stderr
    assert "Z" not in container.states().values()


def _stops(container: Container, within: float) -> None:
    container.signal(signal.SIGTERM)
    code = container.wait(within)
    assert code == 0, f"exit code {code}\n{container.stderr}{container.stdout}"
    events = [json.loads(line) for line in container.stdout.splitlines() + container.stderr.splitlines()]
    assert events[-1]["event"] == "supervisor.stopped", events[-1]


# ---------------------------------------------------------------- helpers


def echo(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program's output


def _bytes(path: Path) -> int:
    listed = subprocess.run(["du", "--bytes", "--summarize", path], capture_output=True, text=True, check=True)
    return int(listed.stdout.split()[0])


def _absent(word: str, image: Image, inspection: str) -> None:
    """what pip was told for the build is not in the image"""
    assert word not in inspection
    found = subprocess.run(["grep", "-rlF", word, image.root], capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stdout + found.stderr


def _get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def _until(holds: Callable[[], bool], seconds: float, container: Container) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert container.running(), f"the container ended\n{container.stderr}{container.stdout}"
        assert time.monotonic() < deadline, f"waited in vain\n{container.stderr}{container.stdout}"
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="the image's root file system, mounted")
    parser.add_argument("--inspect", type=Path, required=True, help="what `buildah inspect` says")
    parser.add_argument("--absent", required=True, help="a word given to the build that must not be in the image")
    parser.add_argument("--bootstrap", help="a broker; without it the checks that need one are left out")
    options = parser.parse_args()
    inspection = options.inspect.read_text()
    image = Image.read(options.root, inspection)

    failures = 0

    def attempt(check: Callable[..., None], *arguments: object) -> None:
        nonlocal failures
        try:
            check(*arguments)
        except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
            failures += 1
            echo(f"NOT OK  {check.__doc__}\n{type(error).__name__}: {error}")
        else:
            echo(f"ok      {check.__doc__}")

    attempt(_absent, options.absent, image, inspection)
    for check in (size, helps, confined, refuses):
        attempt(check, image)
    for whole in (works, drains, starts) if options.bootstrap else ():
        queue = Queue(options.bootstrap, f"container-proof-{uuid4().hex[:8]}")
        queue.create()
        try:
            attempt(whole, image, queue)
        finally:
            queue.delete()
    echo("proved" if not failures else f"disproved: {failures} checks failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
