"""A replica that cannot start: the right exit code, and one clear line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.kafka.support.site import Site
from tests.kafka.support.topics import Submission, reading, task, topic_names
from tests.kafka.support.waiting import until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kafka.support.replica import Replica
    from tests.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

SECRET = "tr0ub4dor-and-3"


class Mistake(NamedTuple):
    """The wrong settings ("" unsets), the exit code, and what the line must name."""

    code: int
    name: str
    variables: dict[str, str]
    named: tuple[str, ...]


SETTINGS = [
    Mistake(2, "no broker", {"KAFKA_BOOTSTRAP_SERVER": ""}, ("KAFKA_BOOTSTRAP_SERVER",)),
    Mistake(2, "no handler", {"WORKER_HANDLER": ""}, ("WORKER_HANDLER",)),
    Mistake(2, "misspelt", {"KAFKA_REQEST_TOPIC": "requests"}, ("KAFKA_REQEST_TOPIC", "KAFKA_REQUEST_TOPIC")),
    Mistake(2, "misspelt worker", {"WORKER_PROCESES": "3"}, ("WORKER_PROCESES", "WORKER_PROCESSES")),
    Mistake(2, "no duration", {"WORKER_DRAIN_TIMEOUT": "soon"}, ("WORKER_DRAIN_TIMEOUT", "soon")),
    Mistake(2, "no choice", {"WORKER_GUARANTEE": "maybe"}, ("WORKER_GUARANTEE", "maybe")),
    Mistake(2, "no number", {"WORKER_PROCESSES": "many"}, ("WORKER_PROCESSES", "many")),
    Mistake(2, "no object", {"WORKER_HANDLER_KWARGS": "[1]"}, ("WORKER_HANDLER_KWARGS",)),
    Mistake(2, "owned property", {"KAFKA_CONFIG_ENABLE_AUTO_COMMIT": "true"}, ("KAFKA_CONFIG_ENABLE_AUTO_COMMIT",)),
    Mistake(2, "no such property", {"KAFKA_CONFIG_SOCKET_TIMEOUT": "1"}, ("KAFKA_CONFIG_SOCKET_TIMEOUT",)),
    Mistake(2, "no such file", {"KAFKA_CONSUMER_GROUP_ID": "", "KAFKA_CONSUMER_GROUP_ID_FILE": "/none"}, ("_FILE",)),
]
MODULES = {
    "broken.py": "import json\n\nimport surely_not_installed\n",
    "raising.py": "LIMIT = 3\nprint(1 / (LIMIT - 3))\n",
    "slip.py": "def handle(request, context):\n    return (1\n",
    "narrow.py": "def handle(request):\n    return None\n",
    "exiting.py": "import sys\nsys.exit('no licence')\n",
    "leaving.py": "import os\nos._exit(9)\n",
    "killing.py": "import os\nos.abort()\n",
    "good.py": "def handle(request, context):\n    return None\n",
}
HANDLERS = [
    Mistake(3, "no module", {"WORKER_HANDLER": "nowhere:handle"}, ("nowhere",)),
    Mistake(3, "no function", {"WORKER_HANDLER": "good:handel"}, ("good", "handel", "handle")),
    Mistake(3, "missing import", {"WORKER_HANDLER": "broken:handle"}, ("broken.py", "line 3", "surely_not_installed")),
    Mistake(3, "raises", {"WORKER_HANDLER": "raising:handle"}, ("raising.py", "line 2", "ZeroDivisionError")),
    Mistake(3, "syntax", {"WORKER_HANDLER": "slip:handle"}, ("slip.py", "line 2")),
    Mistake(3, "arguments", {"WORKER_HANDLER": "narrow:handle"}, ("narrow",)),
    Mistake(3, "kwargs", {"WORKER_HANDLER": "good:handle", "WORKER_HANDLER_KWARGS": '{"depth": 3}'}, ("depth",)),
    Mistake(3, "exits", {"WORKER_HANDLER": "exiting:handle"}, ("exiting.py", "line 2", "no licence")),
    Mistake(3, "leaves", {"WORKER_HANDLER": "leaving:handle"}, ("leaving:handle", "exit code 9")),
    Mistake(
        3,
        "leaves a child",
        {"WORKER_HANDLER": "leaving:handle", "WORKER_ISOLATION": "process"},
        ("leaving:handle", "exit code 9"),
    ),
    Mistake(
        3,
        "no module, no topic",
        {"WORKER_HANDLER": "nowhere:handle", "KAFKA_ACK_TOPIC": "surely-not-there", "KAFKA_CONNECT_TIMEOUT": "3s"},
        ("nowhere",),
    ),
]
MISSING = "surely-not-there"
TOPICS = [
    Mistake(4, f"no {name}", {name: MISSING, "KAFKA_CONNECT_TIMEOUT": "3s"}, (name, MISSING))
    for name in ("KAFKA_REQUEST_TOPIC", "KAFKA_ACK_TOPIC")
]
MISTAKES = [*SETTINGS, *HANDLERS, *TOPICS]
KILLING = Mistake(5, "kills", {"WORKER_HANDLER": "killing:handle"}, ("SIGABRT",))


def error_line(replica: Replica) -> str:
    """Return the only line on stderr that is not a JSON log line."""
    lines = [line for line in replica.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, replica.tail()
    assert "Traceback" not in replica.stderr, replica.tail()
    return lines[0]


@pytest.fixture(scope="module")
def verdicts(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Replica]]:
    """Start a replica for each mistake, all at the same time, in a folder with the modules above."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    site = Site(broker, folder)
    defaults = {"WORKER_HANDLER": "good:handle", "WORKER_HANDLER_KWARGS": "{}"}
    try:
        yield {
            mistake.name: site.start(folder, **{**defaults, **mistake.variables}) for mistake in [*MISTAKES, KILLING]
        }
    finally:
        site.close()


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_a_mistake_has_its_exit_code_and_one_line_that_names_it(verdicts: dict[str, Replica], mistake: Mistake) -> None:
    """The line names the variable, the topic, or the user's file and line."""
    replica = verdicts[mistake.name]
    assert replica.wait_exit() == mistake.code, replica.tail()
    line = error_line(replica)
    assert [name for name in mistake.named if name not in line] == [], line


def test_looking_for_a_topic_does_not_create_it(broker: Broker, verdicts: dict[str, Replica]) -> None:
    for mistake in TOPICS:
        verdicts[mistake.name].wait_exit()
    assert MISSING not in topic_names(broker.bootstrap)


def test_a_handler_that_kills_its_process_on_import_is_reported(verdicts: dict[str, Replica]) -> None:
    replica = verdicts[KILLING.name]
    assert replica.wait_exit() == KILLING.code, replica.tail()
    (line,) = [line for line in replica.stderr.splitlines() if line.startswith("worker: ")]
    assert [name for name in KILLING.named if name not in line] == [], line


def test_a_replica_without_a_broker_ends_after_the_time_out(site: Callable[..., Site]) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    replica = site().start(KAFKA_BOOTSTRAP_SERVER=nobody, KAFKA_CONNECT_TIMEOUT="3s")
    assert replica.wait_exit() == 4, replica.tail()
    assert 3 <= time.monotonic() - began < 20
    assert nobody in error_line(replica)


def test_a_missing_dead_letter_topic_is_created(site: Callable[..., Site]) -> None:
    """It has the default name. A request must not fail because this topic is missing."""
    one = site()
    dead_letters = f"{one.requests}.dlq"
    one.start(KAFKA_DEAD_LETTER_TOPIC="").wait_ready()
    assert dead_letters in topic_names(one.bootstrap)
    one.submit([Submission(None, b"tombstone")])
    one.finish()
    with reading(one.bootstrap, dead_letters, 2) as reader:
        until(reader.read, f"nothing in {dead_letters}")


def test_secrets_are_never_shown(site: Callable[..., Site], tmp_path: Path) -> None:
    """Neither a working replica nor one that cannot start shows a secret, even at the most verbose log level."""
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    in_file = {"KAFKA_CONFIG_SSL_KEY_PASSWORD_FILE": str(file)}
    settings = {
        **in_file,
        "KAFKA_CONFIG_SASL_PASSWORD": SECRET,
        "KAFKA_CONFIG_SASL_USERNAME": "worker",
        "WORKER_LOG_LEVEL": "DEBUG",
    }
    one = site()
    works = one.start(**settings).wait_ready()
    one.submit([task(1, "go")])
    wrong = one.start(**settings, WORKER_GUARANTEE="maybe")
    alone = one.start(
        **settings,
        KAFKA_CONFIG_SECURITY_PROTOCOL="SASL_PLAINTEXT",
        KAFKA_CONFIG_SASL_MECHANISM="PLAIN",
        KAFKA_CONNECT_TIMEOUT="3s",
    )
    assert (wrong.wait_exit(), alone.wait_exit()) == (2, 4), one.tails()
    pages = [works.page(path).text for path in ("/tasks", "/metrics", "/readyz")]
    one.finish()
    assert SECRET not in "".join([*pages, *(replica.stderr for replica in one.replicas)])
