"""Names of variables: misspelt names are refused, and variables of other programs are ignored."""

from __future__ import annotations

import pytest

from tests.unit.environment import load, the_line

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
    # The prefix.
    "WORKR_PROCESSES": "WORKER_PROCESSES",
    "WORKERS_PROCESES": "WORKER_PROCESSES",
    "WOKRER_HANDLER_KWARGS_FILE": "WORKER_HANDLER_KWARGS",
    "KAFA_STATE_TOPIC": "KAFKA_STATE_TOPIC",
    "KAFAK_ACK_TOPIC": "KAFKA_ACK_TOPIC",
    "KFKA_CONFIG_SASL_PASSWORD": "KAFKA_CONFIG_<KEY>",
    # The ending.
    "WORKER_HANDLER_FLE": "WORKER_HANDLER_FILE",
    "KAFKA_ACK_TOPIC_FILES": "KAFKA_ACK_TOPIC_FILE",
    # A part of the name.
    "WORKER_ORDER": "WORKER_ORDERING",
    "WORKER_BACKOFF": "WORKER_RETRY_BACKOFF",
    "WORKER_TIMEOUT": "WORKER_TASK_TIMEOUT",
    "WORKER_TIMEOUT_FILE": "WORKER_TASK_TIMEOUT",
    "WORKER_MEMORY": "WORKER_TASK_MEMORY",
    "WORKER_ATTEMPTS": "WORKER_MAX_ATTEMPTS",
    "KAFKA_MEMBERSHIP": "KAFKA_STATIC_MEMBERSHIP",
    # Synonyms.
    "KAFKA_DLQ_TOPIC": "KAFKA_DEAD_LETTER_TOPIC",
    "KAFKA_DLQ": "KAFKA_DEAD_LETTER_TOPIC",
    "WORKER_MAX_RETRIES": "WORKER_MAX_ATTEMPTS",
}
FOREIGN = {
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
    "WORKERS_PORT": "tcp://10.0.0.1:443",
    "WORKERS_HTTP_PORT": "tcp://10.0.0.1:443",
    "WORKERS_HTTP_SERVICE_PORT": "443",
    "KAFKA_UI_PORT": "tcp://10.0.0.1:443",
    "KAFKA_UI_SERVICE_HOST": "10.0.0.1",
    "KAFKA_TIMEOUT_SERVICE_HOST": "10.0.0.1",
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
    "KAFKA_BROKER_ID": "1",
    "KAFKA_NODE_ID": "1",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092",
    "KAFKA_BROKERS": "kafka:9092",
    "KAFKA_SERVER": "kafka:9092",
    "KAFKA_TOPIC": "others",
    "KAFKA_GROUP_ID": "others",
    "KAFKA2_BOOTSTRAP_SERVER": "kafka:9092",
    # Other programs, and possible variables of later versions.
    "WORKER_CHECKPOINT": "topic",
    "WORKER_LENDING": "pod",
    "WORKER_MEMORY_LIMIT": "2g",
    "WORKER_HTTP_HOST": "localhost",
    "WORKER_REVOKE_POLICY": "hold",
    "WORKER_CONCURRENCY": "4",
    "WORKER_ID": "7",
    "WORKER_NAME": "seven",
    "WORKER_MODE": "fast",
    "WORKER_CLASS": "gevent",
    "WORKER_PID_FILE": "/run/pid",
    "WORKERS_PER_CORE": "1",
    "WORK_DIR": "/work",
    "WORKSPACE_PROCESSES": "2",
    "KAFKACAT_CONFIG": "/etc/kcat",
}


@pytest.mark.parametrize(("misspelt", "meant"), MISSPELT.items())
def test_a_misspelt_name_is_refused_and_the_line_suggests_the_right_one(misspelt: str, meant: str) -> None:
    """A misspelt name is close to the name of a variable of the worker."""
    assert the_line(**{misspelt: "x"}) == f"{misspelt} is not known: is {meant} meant? Correct it, or unset it"


@pytest.mark.parametrize("name", FOREIGN)
def test_variables_of_other_programs_are_ignored(name: str) -> None:
    """Their names may begin with ``WORKER_`` or ``KAFKA_``."""
    assert load(**{name: FOREIGN[name]}) == load()


def test_a_worker_port_of_another_program_is_ignored() -> None:
    """Kubernetes sets WORKER_PORT to a URL. Other programs set it to a number."""
    assert load(WORKER_PORT="8080") == load()


def test_a_shortened_name_is_ignored_if_the_full_name_is_set() -> None:
    """WORKER_TIMEOUT beside WORKER_TASK_TIMEOUT belongs to another program. A misspelt name is still refused."""
    assert load(WORKER_TIMEOUT="5", WORKER_TASK_TIMEOUT="60s").task_timeout == 60
    assert load(KAFKA_DLQ_TOPIC="theirs", KAFKA_DEAD_LETTER_TOPIC="ours").dead_letter_topic == "ours"
    assert "WORKER_PROCESES" in the_line(WORKER_PROCESES="5", WORKER_PROCESSES="5")


def test_the_line_about_a_missing_variable_mentions_a_similar_name_that_is_set() -> None:
    """A misspelt name has its own line, and then there is no line about the missing variable."""
    line = the_line(KAFKA_CONSUMER_GROUP_ID="", KAFKA_CONSUMER_NAME="workers")

    assert line.endswith("(KAFKA_CONSUMER_NAME is set: is this one meant?)")
    assert "is KAFKA_CONSUMER_GROUP_ID meant?" in the_line(KAFKA_CONSUMER_GROUP_ID="", KAFKA_GROUP_ID="workers")
    assert "is KAFKA_ACK_TOPIC meant?" in the_line(KAFKA_ACK_TOPIC="", KAFKA_ACKS_TOPIC="answers")
