"""``worker stack``, with real processes and a scripted replica."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from tests.unit.fake_topics import STATES, FakeTopics
from worker import stacks as reader
from worker.cli import stack
from worker.cli.app import cli
from worker.cli.stack import Found, find
from worker.core.task_state import Origin, TaskState
from worker.stacks import StackError, stacks, stacks_of_tree
from worker.state import stack_replies
from worker.state.records import encode_state, state_key
from worker.state.stack_records import StackReply, StackRequest, decode, encode, reply_key, request_key
from worker.state.stack_replies import Runner, StackReplies
from worker.state.table import StateTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.kafka.sender import Outgoing

ORIGIN = Origin("requests", 3, 17)
TASK = {"topic": "requests", "partition": 3, "offset": 17, "pid": 40}
IDLE: dict[str, Any] = {"pid": 30, "task": None, "partitions": {"requests[3]": {}}}

HANDLER = textwrap.dedent(
    """
    import ctypes, sys, threading
    libc = ctypes.PyDLL(None)  # its calls keep the interpreter lock

    def my_handler():
        print("ready", flush=True)
        libc.usleep(60_000_000)

    thread = threading.Thread(target=my_handler, name="executor")
    thread.start()
    thread.join()
    """
)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """Start a process whose handler runs C code and holds the interpreter lock."""
    command = [sys.executable, "-c", HANDLER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_the_stack_of_a_handler_in_c_code_is_read(process: subprocess.Popen[str]) -> None:
    """The process continues to run."""
    text = stacks(process.pid)

    assert "my_handler" in text
    assert '"executor"' in text
    assert process.poll() is None


def test_a_process_that_has_ended_is_reported() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    with pytest.raises(StackError, match=f"process {done.pid} has ended"):
        stacks(done.pid)


def test_without_py_spy_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "shutil", SimpleNamespace(which=lambda _name, path=None: path and None))
    with pytest.raises(StackError, match="pip install py-spy"):
        stacks(os.getpid())


def test_a_missing_ptrace_permission_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = SimpleNamespace(returncode=1, stdout="", stderr="Error: Permission Denied: Try running again\n")
    monkeypatch.setattr(reader, "subprocess", SimpleNamespace(run=lambda *_, **__: refusal, TimeoutExpired=OSError))
    with pytest.raises(StackError, match=r"allow ptrace \(kernel.yama.ptrace_scope=0"):
        stacks(os.getpid())


# ---------------------------------------------------------------- which process


def test_the_process_that_runs_the_task_is_found() -> None:
    """Under ``WORKER_ISOLATION=process`` it is the child process, whose pid is in the task."""
    assert find([IDLE, {"pid": 31, "task": TASK}], ORIGIN) == Found(40, certain=True)
    assert find([{"pid": 31, "task": {**TASK, "offset": 18}}], ORIGIN) is None
    beside = {"pid": 31, "task": {**TASK, "offset": 18}, "beside": [TASK]}
    assert find([IDLE, beside], ORIGIN) == Found(40, certain=True)


def test_a_process_that_cannot_report_its_task_is_found_by_its_partition() -> None:
    """Its handler has held the interpreter lock since the start."""
    assert find([IDLE, {**IDLE, "pid": 31, "partitions": {}}], ORIGIN) == Found(30, certain=False)
    assert find([{**IDLE, "task": {**TASK, "offset": 18}}], ORIGIN) is None


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> FakeTopics:
    topics = FakeTopics()
    topics.settings.http_port = 8080
    monkeypatch.setattr(stack, "Access", lambda: topics)
    monkeypatch.setattr(stack, "stacks", lambda pid, *, native: f"stacks of {pid}{' native' * native}\n")
    monkeypatch.setattr(stack, "processes", lambda _url, *, named: [] if named else [{"pid": 31, "task": TASK}])
    return topics


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["stack", *arguments], standalone_mode=False, catch_exceptions=False)
    return result.return_value, result.stdout, result.stderr


@pytest.mark.usefixtures("topics")
def test_the_stacks_are_printed() -> None:
    assert run("requests/3/17") == (0, "stacks of 40\n", "")
    assert run("requests/3/17", "--native") == (0, "stacks of 40 native\n", "")


def test_without_a_state_topic_the_command_must_run_where_the_task_runs(topics: FakeTopics) -> None:
    topics.settings.state_topic = ""
    code, out, err = run("requests/0/5")
    assert (code, out) == (1, "")
    assert "run the command where it runs, or set KAFKA_STATE_TOPIC" in err


@pytest.mark.usefixtures("topics")
def test_the_command_says_that_it_found_the_process_by_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "processes", lambda _url, **_: [IDLE])
    code, out, err = run("requests/3/17")
    assert (code, out) == (0, "stacks of 30\n")
    assert "the process that has its partition" in err


@pytest.mark.usefixtures("topics")
def test_wrong_usage_ends_in_a_line() -> None:
    with pytest.raises(click.UsageError, match="'requests' must be topic/partition/offset"):
        run("requests")


# ---------------------------------------------------------------- from another machine


FAR = Origin("requests", 0, 5)


def replies_of(topics: FakeTopics, monkeypatch: pytest.MonkeyPatch, runner: Runner | None) -> None:
    """Let a replica read each record as soon as it is written. Its stacks are scripted."""
    monkeypatch.setattr(stack_replies, "stacks_of_tree", lambda pid, *, native: f"tree of {pid}{' native' * native}\n")
    replies = StackReplies(STATES, 2, lambda origin: runner if origin == FAR else None, write=topics.write)
    topics.on_write = lambda record: replies.take(record.key, record.value)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for a reply."""
    monkeypatch.setattr(stack, "TIMEOUT", 0.05)


def last_values(topics: FakeTopics) -> list[bytes | None]:
    """Return the values that compaction would keep."""
    logs = (log for place, log in topics.logs.items() if place.topic == STATES)
    return list({record.key: record.value for log in logs for record in log}.values())


def test_the_replica_that_runs_the_task_replies(topics: FakeTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the request nor the reply stays on the topic."""
    replies_of(topics, monkeypatch, Runner("replica-7-1", 71))

    assert run("requests/0/5") == (0, "tree of 71\n", "replica-7-1 runs it\n")
    assert run("requests/0/5", "--native")[1] == "tree of 71 native\n"
    assert last_values(topics) == [None, None]


def test_the_command_explains_why_a_process_cannot_be_read(topics: FakeTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    replies_of(topics, monkeypatch, Runner("replica-7-1", 71))

    def refuse(_pid: int, *, native: bool) -> str:
        assert not native
        raise StackError("allow ptrace")

    monkeypatch.setattr(stack_replies, "stacks_of_tree", refuse)
    assert run("requests/0/5") == (1, "", "replica-7-1 runs it\nallow ptrace\n")


@pytest.mark.usefixtures("short")
def test_a_request_without_a_reply_does_not_stay_on_the_topic(
    topics: FakeTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies_of(topics, monkeypatch, None)

    code, out, err = run("requests/0/5")

    assert (code, out) == (1, "")
    assert "that it runs requests/0/5" in err
    assert last_values(topics) == [None, None]


class Inline(Executor):
    """An executor that runs each call immediately, on the calling thread."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        fn(*args, **kwargs)
        return Future[None]()


def test_a_replica_ignores_old_requests_and_other_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a replica starts, it reads the topic from the beginning."""
    monkeypatch.setattr(stack_replies, "ThreadPoolExecutor", Inline)
    monkeypatch.setattr(stack_replies, "stacks_of_tree", lambda _pid, *, native: f"native: {native}")
    written: list[Outgoing] = []
    replies = StackReplies(STATES, 2, lambda _: Runner("replica-7-1", 71), written.append)
    old = StackRequest(FAR, "1", 1_000.0)

    replies.take(request_key(FAR), encode(old))
    replies.take(request_key(FAR), None)
    replies.take(state_key(FAR), encode_state(TaskState(FAR, "replica-7-1", 1, 1, 1)))

    assert written == []


def test_a_replica_that_does_not_run_the_task_sends_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_replies, "ThreadPoolExecutor", Inline)
    replies = StackReplies(STATES, 2, lambda _: None, lambda record: pytest.fail(str(record)))
    replies.take(request_key(FAR), encode(StackRequest(FAR, "1", time.time())))


@pytest.mark.parametrize(
    "record", [StackRequest(FAR, "1", 2.5, native=True), StackReply(FAR, "1", "w", "text", good=True)]
)
def test_records_are_read_as_they_were_written(record: StackRequest | StackReply) -> None:
    key = request_key(FAR) if isinstance(record, StackRequest) else reply_key(FAR)
    assert decode(key, encode(record)) == record
    assert StateTable().apply(key, encode(record)) is None, "the table of long tasks ignores them"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"stack:a/0/1", b"{"),
        (b"stack:a/0/1", b"[]"),
        (b"stack:a/0", b"{}"),
        (b"stack:a/0/1", b'{"number": "1", "native": false, "requested_at": 1' + b"0" * 400 + b"}"),
        (b"\xff", b""),
        (b"x:a/0/1", b"{}"),
    ],
)
def test_other_records_on_the_topic_are_ignored(key: bytes | None, value: bytes) -> None:
    assert decode(key, value) is None


def test_the_stacks_of_a_process_include_its_python_children(process: subprocess.Popen[str]) -> None:
    """One of them may be the child process that runs the task."""
    shell = subprocess.Popen(["sleep", "30"])
    try:
        text = stacks_of_tree(os.getpid())
    finally:
        shell.kill()
        shell.wait()
    assert f"Process {os.getpid()}" in text
    assert f"Process {process.pid}" in text
    assert "my_handler" in text
