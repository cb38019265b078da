"""The settings: what is read, what is refused and how that is said, and that nothing secret is ever shown."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from pydantic import ValidationError

from worker.errors import ExitCode, SettingsError
from worker.settings import ClientSettings, Settings
from worker.settings.masking import looks_secret
from worker.settings.values import Backoff, duration, show_duration

NEEDED = {
    "KAFKA_BOOTSTRAP_SERVER": "kafka:9092",
    "KAFKA_REQUEST_TOPIC": "requests",
    "KAFKA_ACK_TOPIC": "answers",
    "KAFKA_CONSUMER_GROUP_ID": "workers",
    "WORKER_HANDLER": "package.module:function",
}
SECRET = "tr0ub4dor&3"
EXAMPLE = Path(__file__).parents[2] / "config/worker.env"


def load(**variables: str) -> Settings:
    """Settings from what is needed and these."""
    return Settings.load(NEEDED | variables)


def lines(**variables: str) -> list[str]:
    """The lines that these variables are refused with."""
    with pytest.raises(SettingsError) as caught:
        load(**variables)
    assert caught.value.exit_code is ExitCode.SETTINGS_INVALID
    return str(caught.value).splitlines()


def the_line(**variables: str) -> str:
    (line,) = lines(**variables)
    return line


# ---------------------------------------------------------------- what is read


def test_defaults() -> None:
    """The required five are enough; everything else has the contract's default."""
    settings = load()

    assert settings.dead_letter_topic == "requests.dlq"
    assert (settings.group_protocol, settings.connect_timeout, settings.http_port) == ("auto", 60.0, 8080)
    assert (settings.handler_kwargs, settings.processes, settings.batch_size) == ({}, "auto", 1)
    assert (settings.guarantee, settings.ordering, settings.max_attempts) == ("at-least-once", "partition", 3)
    assert settings.retry_backoff == Backoff(1.0, 300.0)
    assert (settings.revoke_hold, settings.revoke_hold_classic, settings.drain_timeout) == (86_400.0, 60.0, 0.0)
    assert (settings.batch_wait, settings.batch_per_partition, settings.peek, settings.offset_store) == (
        0,
        False,
        0,
        "",
    )
    assert (settings.replica, settings.static_membership) == ("", "auto")
    assert (settings.commit_every, settings.commit_interval, settings.commit_mode) == (1, 5.0, "async")
    assert (settings.liveness_timeout, settings.log_level, settings.log_format) == (60.0, "INFO", "auto")


def test_every_variable() -> None:
    """Each variable sets its field."""
    settings = load(
        KAFKA_BOOTSTRAP_SERVER="a:1, [::1]:2 ,SASL_SSL://c:3",
        KAFKA_REQUEST_TOPIC=" one , two",
        KAFKA_DEAD_LETTER_TOPIC="dead",
        KAFKA_GROUP_PROTOCOL="Classic",
        KAFKA_CONNECT_TIMEOUT="2m",
        KAFKA_CONFIG_SECURITY_PROTOCOL="SASL_SSL",
        KAFKA_CONFIG_LOG_LEVEL="7",
        WORKER_HANDLER_KWARGS='{"depth": 3}',
        WORKER_PROCESSES="4",
        WORKER_MAX_ATTEMPTS="5",
        WORKER_RETRY_BACKOFF="500ms .. 1h",
        WORKER_REVOKE_HOLD="2h",
        WORKER_REVOKE_HOLD_CLASSIC="15",
        WORKER_DRAIN_TIMEOUT="90s",
        WORKER_LIVENESS_TIMEOUT="1.5m",
        WORKER_HTTP_PORT="0",
        WORKER_LOG_LEVEL="debug",
        WORKER_LOG_FORMAT="JSON",
    )

    assert settings.bootstrap == "a:1,[::1]:2,SASL_SSL://c:3"
    assert (settings.request_topics, settings.dead_letter_topic) == (("one", "two"), "dead")
    assert (settings.group_protocol, settings.connect_timeout, settings.http_port) == ("classic", 120.0, 0)
    assert settings.properties == {"security.protocol": "SASL_SSL", "log_level": "7"}
    assert (settings.handler_kwargs, settings.processes, settings.max_attempts) == ({"depth": 3}, 4, 5)
    assert settings.retry_backoff == (0.5, 3600.0)
    assert (settings.revoke_hold, settings.revoke_hold_classic) == (7200.0, 15.0)
    assert (settings.drain_timeout, settings.liveness_timeout) == (90.0, 90.0)
    assert (settings.log_level, settings.log_format) == ("DEBUG", "json")


def test_the_example_names_every_variable_with_its_default() -> None:
    """config/worker.env and the settings know the same variables and the same defaults."""
    shown = dict(line.removeprefix("#").split("=", 1) for line in EXAMPLE.read_text().splitlines() if _sets(line))
    required = ClientSettings.load(NEEDED).describe()[:4]
    defaults = {name: value for name, value, is_default in load().describe() if is_default}

    assert {*shown} == {*defaults, *(name for name, _, _ in required), "WORKER_HANDLER"}
    told = {name: _plain(value) for name, value in defaults.items() if value}  # of the others an example is of more use
    assert {name: _plain(shown[name]) for name in told} == told


def _sets(line: str) -> bool:
    name, _, _ = line.removeprefix("#").partition("=")
    return name.isupper() and " " not in name and not name.startswith("KAFKA_CONFIG_") and "=" in line


def _plain(value: str) -> str:
    return "0" if value == "0s" else value


def test_empty_is_unset() -> None:
    """A variable that is empty or blank counts as not set, also a required one and a misspelt one."""
    assert load(WORKER_PROCESSES="", KAFKA_GROUP_PROTOCOL=" ", WORKER_HANDLR="").processes == "auto"
    assert the_line(KAFKA_ACK_TOPIC="") == "KAFKA_ACK_TOPIC is not set: topic of Response messages"


def test_only_what_is_given_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's own environment is never looked at."""
    monkeypatch.setenv("WORKER_PROCESSES", "7")
    monkeypatch.setenv("KAFKA_GROUP_PROTOCOL", "classic")

    assert (load().processes, load().group_protocol) == ("auto", "auto")


def test_settings_are_frozen() -> None:
    """No field can be changed."""
    with pytest.raises(ValidationError):
        load().http_port = 1  # type: ignore[misc]


def test_clients_need_no_handler() -> None:
    """The tools work without the worker's variables, and do not mind a wrong one."""
    environ = {name: text for name, text in NEEDED.items() if name.startswith("KAFKA_")}

    assert ClientSettings.load({**environ, "WORKER_PROCESSES": "many"}).group == "workers"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1d", 86_400),
        ("7", 7),
        ("0.5", 0.5),
        (" 1.5 H ", 5400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """A number with a unit, or of seconds."""
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1 s 2", "1w", "nan", "inf", "1e3", "s"])
def test_no_durations(text: str) -> None:
    """Anything else is none."""
    with pytest.raises(ValueError, match="must be a duration"):
        duration(text)


@pytest.mark.parametrize("text", ["0s", "250ms", "1s", "1.5s", "60s", "90s", "5m", "90m", "24h", "48h"])
def test_durations_are_shown_as_they_are_written(text: str) -> None:
    """What is shown is what one would write."""
    assert show_duration(duration(text)) == text


# ---------------------------------------------------------------- files


def test_a_value_from_a_file(tmp_path: Path) -> None:
    """``*_FILE`` takes the file's text without the newline at its end, also for properties, which are secret then."""
    (tmp_path / "topic").write_text("from-file\r\n")
    (tmp_path / "password").write_text(f" {SECRET} \n")
    settings = load(
        KAFKA_REQUEST_TOPIC="",
        KAFKA_REQUEST_TOPIC_FILE=str(tmp_path / "topic"),
        KAFKA_CONFIG_SASL_PASSWORD_FILE=str(tmp_path / "password"),
    )

    assert settings.request_topics == ("from-file",)
    assert settings.link().given == {"sasl.password": f" {SECRET} "}


def test_properties_that_are_files_themselves() -> None:
    """librdkafka's own ``….file`` properties keep their path."""
    settings = load(KAFKA_CONFIG_SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE="/keys/one")

    assert settings.link().given == {"sasl.oauthbearer.assertion.private.key.file": "/keys/one"}


def test_a_variable_and_its_file(tmp_path: Path) -> None:
    """Both at once is a mistake, and none of them wins."""
    (tmp_path / "group").write_text("other")
    both = {"KAFKA_CONSUMER_GROUP_ID_FILE": str(tmp_path / "group")}

    assert the_line(**both) == (
        "KAFKA_CONSUMER_GROUP_ID and KAFKA_CONSUMER_GROUP_ID_FILE are both set: leave one of them out"
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "cannot be read: No such file"), (b"\n", "the file is empty"), (b"\xff\xfe", "it is not UTF-8 text")],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    """One line about the file, and none that the variable is missing."""
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    line = the_line(KAFKA_ACK_TOPIC="", KAFKA_ACK_TOPIC_FILE=str(path))

    assert line.startswith(f"KAFKA_ACK_TOPIC_FILE='{path}'")
    assert complaint in line


def test_a_secret_where_its_path_belongs() -> None:
    """Is not quoted, as a path would be."""
    assert the_line(KAFKA_CONFIG_SASL_PASSWORD_FILE=SECRET).startswith("KAFKA_CONFIG_SASL_PASSWORD_FILE cannot be read")


# ---------------------------------------------------------------- names

MISSPELT = {
    "WORKER_HANDLR": "WORKER_HANDLER",
    "WORKER_HANDLERS": "WORKER_HANDLER",
    "WORKER_HANDLER_ARGS": "WORKER_HANDLER_KWARGS",
    "WORKER_PROCESS": "WORKER_PROCESSES",
    "WORKER_PROCESES": "WORKER_PROCESSES",
    "WORKER_PROCESES_FILE": "WORKER_PROCESSES",
    "WORKER_GARANTEE": "WORKER_GUARANTEE",
    "WORKER_BATCHSIZE": "WORKER_BATCH_SIZE",
    "WORKER_MAX_ATTEMPT": "WORKER_MAX_ATTEMPTS",
    "WORKER_RETRY_BACKOFF_MAX": "WORKER_RETRY_BACKOFF",
    "WORKER_REVOKE_HOLDS": "WORKER_REVOKE_HOLD",
    "WORKER_DRAIN_TIME_OUT": "WORKER_DRAIN_TIMEOUT",
    "WORKER_HTP_PORT": "WORKER_HTTP_PORT",
    "WORKER_LOGLEVEL": "WORKER_LOG_LEVEL",
    "KAFKA_BOOTSTRAP_SERVERS": "KAFKA_BOOTSTRAP_SERVER",
    "KAFKA_BOOSTRAP_SERVER": "KAFKA_BOOTSTRAP_SERVER",
    "KAFKA_REQUEST_TOPICS": "KAFKA_REQUEST_TOPIC",
    "KAFKA_REQEST_TOPIC": "KAFKA_REQUEST_TOPIC",
    "KAFKA_ACKS_TOPIC": "KAFKA_ACK_TOPIC",
    "KAFKA_CONSUMER_GROUP": "KAFKA_CONSUMER_GROUP_ID",
    "KAFKA_DEADLETTER_TOPIC": "KAFKA_DEAD_LETTER_TOPIC",
    "KAFKA_GROUP_PROTOCOLS": "KAFKA_GROUP_PROTOCOL",
    "KAFKA_CONECT_TIMEOUT": "KAFKA_CONNECT_TIMEOUT",
    "KAFKA_CONFG_SASL_PASSWORD": "KAFKA_CONFIG_<KEY>",
    "KAFKA_CONFIGS_SASL_PASSWORD": "KAFKA_CONFIG_<KEY>",
}
STRANGERS = {
    # Kubernetes, for Services called kafka, worker, worker-http(s), kafka-bootstrap and worker-handler.
    "KAFKA_SERVICE_HOST": "10.0.0.1",
    "KAFKA_SERVICE_PORT": "9092",
    "KAFKA_SERVICE_PORT_TCP_CLIENTS": "9092",
    "KAFKA_PORT": "tcp://10.0.0.1:9092",
    "KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
    "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
    "KAFKA_BOOTSTRAP_SERVICE_HOST": "10.0.0.1",
    "KAFKA_BOOTSTRAP_SERVICE_PORT": "9092",
    "KAFKA_BOOTSTRAP_PORT": "tcp://10.0.0.1:9092",
    "WORKER_PORT": "tcp://10.0.0.1:8080",
    "WORKER_SERVICE_HOST": "10.0.0.1",
    "WORKER_PORT_8080_TCP_ADDR": "10.0.0.1",
    "WORKER_HTTP_SERVICE_PORT": "8080",
    "WORKER_HTTP_PORT_8080_TCP": "tcp://10.0.0.1:8080",
    "WORKER_HANDLER_PORT": "tcp://10.0.0.1:80",
    "WORKER_HTTPS_PORT": "tcp://10.0.0.1:443",
    # This project's scripts, and Kafka's.
    "KAFKA_DATA_DIR": "/data",
    "KAFKA_VERSION": "4.3.0",
    "KAFKA_BROKER_PROPERTIES": "a=b",
    "KAFKA_JVM_OPTS": "-Xmx1g",
    "KAFKA_START_TIMEOUT": "60",
    "KAFKA_STOP_TIMEOUT": "30",
    "KAFKA_HOME": "/opt/kafka",
    "KAFKA_OPTS": "-D",
    "KAFKA_HEAP_OPTS": "-Xmx1g",
    "KAFKA_LOG4J_OPTS": "-D",
    "KAFKA_LOG_DIRS": "/logs",
    "KAFKA_CONF_DIR": "/etc/kafka",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
    "KAFKA_CONNECT_REST_PORT": "8083",
    "KAFKA_URL": "kafka",
    # Other programs, and what may yet come.
    "WORKER_ISOLATION": "process",
    "WORKER_CHECKPOINT": "topic",
    "WORKER_LENDING": "pod",
    "WORKER_MEMORY_LIMIT": "2g",
    "WORKER_HTTP_HOST": "localhost",
    "WORKER_REVOKE_POLICY": "hold",
    "WORKER_TASK_TIMEOUT": "1h",
    "WORKER_CONCURRENCY": "4",
    "WORKER_ID": "7",
    "WORKER_NAME": "seven",
}


@pytest.mark.parametrize(("misspelt", "meant"), MISSPELT.items())
def test_misspelt_names(misspelt: str, meant: str) -> None:
    """A name close to one of ours is refused, and the line names ours."""
    assert the_line(**{misspelt: "x"}) == f"{misspelt} is not known: is {meant} meant? Correct it, or unset it"


@pytest.mark.parametrize("name", STRANGERS)
def test_other_names(name: str) -> None:
    """Others with our prefixes are nobody's business."""
    assert load(**{name: STRANGERS[name]}) == load()


def test_a_missing_one_and_one_that_may_be_meant() -> None:
    """Where a required variable is missing, a name that resembles it less is mentioned; a misspelt one is enough."""
    line = the_line(KAFKA_CONSUMER_GROUP_ID="", KAFKA_GROUP_ID="workers")

    assert line.endswith("(KAFKA_GROUP_ID is set: is this one meant?)")
    assert "is KAFKA_ACK_TOPIC meant?" in the_line(KAFKA_ACK_TOPIC="", KAFKA_ACKS_TOPIC="answers")


# ---------------------------------------------------------------- what is refused

WRONG = {
    "KAFKA_BOOTSTRAP_SERVER": ["kafka:", "kafka:99999", "a:1,,b:2", "a b", "http://a:1/path"],
    "KAFKA_REQUEST_TOPIC": ["a b", "a,", "a,a", ".", "ü", "x" * 250],
    "KAFKA_ACK_TOPIC": ["a,b", ".."],
    "KAFKA_GROUP_PROTOCOL": ["eager"],
    "KAFKA_CONNECT_TIMEOUT": ["0", "soon"],
    "WORKER_HANDLER": ["module", "module:", "a-b:c", "a:b:c", "a.:b", "a b:c"],
    "WORKER_HANDLER_KWARGS": ["[1]", "{", "3", "depth=3"],
    "WORKER_PROCESSES": ["0", "-1", "many", "1.5"],
    "WORKER_GUARANTEE": ["maybe"],
    "WORKER_ORDERING": ["random"],
    "WORKER_BATCH_SIZE": ["0"],
    "WORKER_BATCH_WAIT": ["-1s", "soon"],
    "WORKER_BATCH_PER_PARTITION": ["maybe"],
    "WORKER_PEEK": ["-1", "all"],
    "WORKER_OFFSET_STORE": ["module"],
    "WORKER_REPLICA": ["a b", "a/b", "x" * 101],
    "KAFKA_STATIC_MEMBERSHIP": ["always"],
    "KAFKA_COMMIT_EVERY": ["0"],
    "KAFKA_COMMIT_INTERVAL": ["0s"],
    "KAFKA_COMMIT_MODE": ["later"],
    "WORKER_MAX_ATTEMPTS": ["0", "three"],
    "WORKER_RETRY_BACKOFF": ["1s", "5m..1s", "0s..1s", "1s..", "1s...2s"],
    "WORKER_REVOKE_HOLD": ["25h", "2d"],
    "WORKER_REVOKE_HOLD_CLASSIC": ["25h"],
    "WORKER_DRAIN_TIMEOUT": ["-5", "never"],
    "WORKER_LIVENESS_TIMEOUT": ["0s"],
    "WORKER_HTTP_PORT": ["65536", "-1", "http"],
    "WORKER_LOG_LEVEL": ["LOUD"],
    "WORKER_LOG_FORMAT": ["xml"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_wrong_values(name: str, text: str) -> None:
    """One line, which names the variable and says what it must be."""
    line = the_line(**{name: text})

    assert line.startswith(name)
    assert "must" in line


def test_the_value_is_quoted() -> None:
    """The line shows what was found, cut if it is long."""
    assert the_line(WORKER_MAX_ATTEMPTS="three").startswith("WORKER_MAX_ATTEMPTS='three' must be a whole number")
    assert len(the_line(WORKER_MAX_ATTEMPTS="x" * 5000)) < 200


def test_every_problem_at_once() -> None:
    """All that is wrong is said in one go, a line each, whoever found it."""
    found = lines(
        WORKER_HANDLR="x", KAFKA_ACK_TOPIC="", WORKER_PROCESSES="x", KAFKA_CONFIG_GROUP_ID="x", KAFKA_CONFIG_ACKS="1"
    )

    assert [line.split(" ")[0].split("=")[0] for line in found] == [
        "WORKER_HANDLR",
        "KAFKA_ACK_TOPIC",
        "WORKER_PROCESSES",
        "KAFKA_CONFIG_ACKS",
        "KAFKA_CONFIG_GROUP_ID",
    ]


def test_topics_that_would_feed_each_other() -> None:
    """Requests, answers and dead letters need topics of their own."""
    assert "KAFKA_ACK_TOPIC='a' must not be one of KAFKA_REQUEST_TOPIC" in the_line(
        KAFKA_REQUEST_TOPIC="b,a", KAFKA_ACK_TOPIC="a"
    )
    for topic in ("b", "answers"):
        line = the_line(KAFKA_REQUEST_TOPIC="a,b", KAFKA_DEAD_LETTER_TOPIC=topic)
        assert line.startswith(f"KAFKA_DEAD_LETTER_TOPIC='{topic}' must be neither")


def test_a_default_that_cannot_be() -> None:
    """A dead-letter topic whose default name would be too long is asked for; a wrong request topic is one problem."""
    assert the_line(KAFKA_REQUEST_TOPIC="x" * 249).startswith("KAFKA_DEAD_LETTER_TOPIC is not set")
    assert the_line(KAFKA_REQUEST_TOPIC="a b").startswith("KAFKA_REQUEST_TOPIC='a b'")


def test_a_port_that_kubernetes_has_set() -> None:
    """A Service called worker-http collides with our variable; the line says so."""
    assert "enableServiceLinks: false" in the_line(WORKER_HTTP_PORT="tcp://10.0.0.1:80")


@pytest.mark.parametrize(
    ("variables", "field", "value"),
    [
        ({"WORKER_GUARANTEE": "Exactly-Once"}, "guarantee", "exactly-once"),
        ({"WORKER_GUARANTEE": "at-most-once"}, "guarantee", "at-most-once"),
        ({"WORKER_ORDERING": "key"}, "ordering", "key"),
        ({"WORKER_ORDERING": "unordered"}, "ordering", "unordered"),
        ({"WORKER_BATCH_SIZE": "2", "WORKER_BATCH_WAIT": "1500ms"}, "batch_wait", 1.5),
        ({"WORKER_BATCH_PER_PARTITION": "On"}, "batch_per_partition", True),
        ({"WORKER_BATCH_PER_PARTITION": "off"}, "batch_per_partition", False),
        ({"WORKER_PEEK": "0"}, "peek", 0),
        ({"WORKER_OFFSET_STORE": "mine.stores:make"}, "offset_store", "mine.stores:make"),
        ({"WORKER_REPLICA": " rack-7.b_2 "}, "replica", "rack-7.b_2"),
        ({"KAFKA_COMMIT_EVERY": "100"}, "commit_every", 100),
        ({"KAFKA_COMMIT_INTERVAL": "2s"}, "commit_interval", 2.0),
        ({"KAFKA_COMMIT_MODE": "SYNC"}, "commit_mode", "sync"),
        ({"KAFKA_STATIC_MEMBERSHIP": "off"}, "static_membership", "off"),
    ],
)
def test_how_work_is_done_can_be_chosen(variables: dict[str, str], field: str, value: object) -> None:
    """Guarantee, ordering, batches, commits: every one of them alone."""
    assert getattr(load(**variables), field) == value


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"WORKER_PEEK": "2", "WORKER_BATCH_SIZE": "2"}, "WORKER_PEEK"),
        ({"KAFKA_STATIC_MEMBERSHIP": "on"}, "needs WORKER_REPLICA"),
        ({"WORKER_OFFSET_STORE": "a:b", "WORKER_GUARANTEE": "at-most-once"}, "WORKER_GUARANTEE"),
        ({"WORKER_OFFSET_STORE": "a:b", "WORKER_ORDERING": "key"}, "WORKER_ORDERING='key'"),
        ({"WORKER_OFFSET_STORE": "a:b", "WORKER_BATCH_SIZE": "2"}, "WORKER_BATCH_SIZE"),
    ],
)
def test_what_does_not_go_together(variables: dict[str, str], said: str) -> None:
    """Each is right alone; one line says which of them to leave out, or what is missing."""
    assert said in the_line(**variables)


# ---------------------------------------------------------------- secrets

SECRETS = {
    "KAFKA_CONFIG_SASL_PASSWORD": SECRET,
    "KAFKA_CONFIG_SSL_KEY_PEM": SECRET,
    "KAFKA_CONFIG_SSL_KEYSTORE_PASSWORD": SECRET,
    "KAFKA_CONFIG_SASL_OAUTHBEARER_CLIENT_SECRET": SECRET,
    "KAFKA_CONFIG_SASL_OAUTHBEARER_CONFIG": SECRET,
    "WORKER_HANDLER_KWARGS": f'{{"db": {{"apiKey": "{SECRET}"}}, "urls": ["pg://me:{SECRET}@host/db"], "n": 3}}',
}


def test_secrets_are_masked() -> None:
    """Neither the settings' own texts nor the description show them; what is harmless stays readable."""
    settings = load(**SECRETS, KAFKA_CONFIG_SASL_USERNAME="me", KAFKA_CONFIG_SSL_KEY_LOCATION="/keys/one")
    described = {name: value for name, value, _ in settings.describe()}

    assert SECRET not in "".join([repr(settings), str(settings), f"{settings!r:s}", *described.values()])
    assert SECRET not in repr(settings.link()) + repr(settings.properties)
    assert described["KAFKA_CONFIG_SASL_PASSWORD"] == "***"
    assert described["WORKER_HANDLER_KWARGS"] == '{"db": {"apiKey": "***"}, "urls": ["pg://me:***@host/db"], "n": 3}'
    assert described["KAFKA_CONFIG_SASL_USERNAME"] == "me"
    assert described["KAFKA_CONFIG_SSL_KEY_LOCATION"] == "/keys/one"


def test_secrets_reach_the_client() -> None:
    """Masked or not, the properties get the real value."""
    assert load(**SECRETS).client_properties()["sasl.password"] == SECRET


def test_values_from_files_are_masked(tmp_path: Path) -> None:
    """Whoever keeps a value in a file wants it there only, whatever it is called."""
    (tmp_path / "file").write_text(SECRET.replace("&", "-"))
    path = str(tmp_path / "file")
    settings = load(KAFKA_CONSUMER_GROUP_ID="", KAFKA_CONSUMER_GROUP_ID_FILE=path, KAFKA_CONFIG_SASL_USERNAME_FILE=path)
    described = {name: value for name, value, _ in settings.describe()}

    assert described["KAFKA_CONSUMER_GROUP_ID"] == f"*** (from {path})"
    assert described["KAFKA_CONFIG_SASL_USERNAME"] == f"*** (from {path})"
    assert "tr0ub4dor" not in repr(settings) + repr(settings.properties)


def test_errors_do_not_quote_secrets(tmp_path: Path) -> None:
    """Neither the line nor the traceback of what led to it, with whatever it was caused by."""
    (tmp_path / "file").write_text(SECRET)
    wrong = {**SECRETS, "WORKER_HANDLER_KWARGS": f'{{"password": "{SECRET}"', "WORKER_MAX_ATTEMPTS": "x"}
    wrong |= {"KAFKA_CONFIG_SSL_TRUSTSTORE_PASSWORD": SECRET, "WORKER_PROCESSES_FILE": str(tmp_path / "file")}
    with pytest.raises(SettingsError) as caught:
        Settings.load(NEEDED | wrong)

    assert len(str(caught.value).splitlines()) == 4
    below = caught.tb.tb_next  # without the locals of this test
    printed = traceback.TracebackException(SettingsError, caught.value, below, capture_locals=True).format()
    assert SECRET not in "".join(printed)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.pem", "dbpassword", "API_KEY", "clientSecret", "token"])
def test_names_that_promise_a_secret(name: str) -> None:
    """By a word of theirs, however it is written."""
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["ssl.key.location", "depth", "monkey", "keytab", "sasl.username", "token.url", ""])
def test_names_that_do_not(name: str) -> None:
    """Where a secret lies, or whose it is, is none."""
    assert not looks_secret(name)
