"""librdkafka's property names: their variables, which ones the worker sets, and which client each belongs to.

This module has tables and the functions that read them. ``tests/unit/test_properties.py`` compares them with the
client's table.
"""

from __future__ import annotations

PREFIX = "KAFKA_CONFIG_"

# The one name with an underscore that a variable could set. It must be recognised to be refused.
_UNDERSCORED = {"log.level": "log_level"}

# Properties whose value is a file path and whose name ends like our ``*_FILE`` variables.
FILE_PROPERTIES = frozenset(
    {
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.assertion.private.key.file",
    }
)

_BY_VARIABLE = "use the variable {}"
_OFFSETS = "offsets are committed when the answer is confirmed, never by a timer of the client"
_FOREVER = "answers are retried until they are confirmed: one that was given up may be in the log, and be sent twice"
_ONE_IN_FLIGHT = "with more, the client can report an answer as delivered that a new leader has refused"
_CONFIRMED = "a request is committed only when all in-sync replicas have its answer, once and in order"
_TEXT = "its value is an object, not a text"

# The properties that the worker sets itself, and why. Aliases are next to the names they stand for.
OWNED = {
    "bootstrap.servers": _BY_VARIABLE.format("KAFKA_BOOTSTRAP_SERVER"),
    "metadata.broker.list": _BY_VARIABLE.format("KAFKA_BOOTSTRAP_SERVER"),
    "group.id": _BY_VARIABLE.format("KAFKA_CONSUMER_GROUP_ID"),
    "group.protocol": _BY_VARIABLE.format("KAFKA_GROUP_PROTOCOL"),
    "group.protocol.type": "the group is one of consumers",
    "group.instance.id": "each process needs its own: set KAFKA_STATIC_MEMBERSHIP=on, and WORKER_REPLICA",
    "client.id": "each process has a client id that begins with <replica>-<slot>, so that worker status can name it",
    "partition.assignment.strategy": "the worker holds revoked partitions, which needs cooperative-sticky",
    "enable.auto.commit": _OFFSETS,
    "auto.commit.enable": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "offset.store.method": _OFFSETS,
    "offset.store.path": _OFFSETS,
    "offset.store.sync.interval.ms": _OFFSETS,
    "enable.partition.eof": "the worker commits past transaction markers, so it needs to know where they end",
    "isolation.level": "requests in aborted transactions must not run, so the worker reads only committed records",
    "allow.auto.create.topics": "a misspelt topic must be an error, not a new topic",
    "max.poll.records": "the worker fetches as many records as its queue has room for",
    "share.acknowledgement.mode": "the worker uses consumer groups, not share groups",
    "enable.idempotence": _CONFIRMED,
    "enable.gapless.guarantee": "an answer that is not delivered must not end the process",
    "max.in.flight": _ONE_IN_FLIGHT,
    "max.in.flight.requests.per.connection": _ONE_IN_FLIGHT,
    "acks": _CONFIRMED,
    "request.required.acks": _CONFIRMED,
    "message.timeout.ms": _FOREVER,
    "delivery.timeout.ms": _FOREVER,
    "message.send.max.retries": _FOREVER,
    "retries": _FOREVER,
    "delivery.report.only.error": "a request is committed when its answer is confirmed, so successes must be reported",
    "partitioner": "answers go to the partition that their key has for Kafka's Java clients (murmur2_random)",
    "transactional.id": "WORKER_GUARANTEE decides whether the worker uses transactions",
    "log_level": "the worker reads the client's log to notice a rebalance that the client missed: use WORKER_LOG_LEVEL",
    "statistics.interval.ms": "the worker reads the statistics itself to notice a client that has lost all brokers",
    "logger": _TEXT,  # these two belong to the Python binding, whose errors about them are unreadable
    "default.topic.config": _TEXT,
}

_PEM = "certificates and keys are PEM here: set KAFKA_CONFIG_{}"
_NO_CODEC = "the worker encodes and decodes messages itself: leave this out"

# Properties that only Kafka's Java clients have, and what to use instead.
JAVA = {
    "ssl.truststore.location": _PEM.format("SSL_CA_LOCATION"),
    "ssl.truststore.certificates": _PEM.format("SSL_CA_PEM"),
    "ssl.truststore.password": _PEM.format("SSL_CA_LOCATION, which needs no password"),
    "ssl.truststore.type": _PEM.format("SSL_CA_LOCATION"),
    "ssl.keystore.certificate.chain": _PEM.format("SSL_CERTIFICATE_PEM"),
    "ssl.keystore.key": _PEM.format("SSL_KEY_PEM"),
    "ssl.keystore.type": "KAFKA_CONFIG_SSL_KEYSTORE_LOCATION is always PKCS#12: leave this out",
    "sasl.jaas.config": "set KAFKA_CONFIG_SASL_USERNAME and KAFKA_CONFIG_SASL_PASSWORD",
    "sasl.login.callback.handler.class": "set KAFKA_CONFIG_SASL_OAUTHBEARER_METHOD=oidc and its other properties",
    "sasl.client.callback.handler.class": "set KAFKA_CONFIG_SASL_OAUTHBEARER_METHOD=oidc and its other properties",
    "key.serializer": _NO_CODEC,
    "value.serializer": _NO_CODEC,
    "key.deserializer": _NO_CODEC,
    "value.deserializer": _NO_CODEC,
    "buffer.memory": "set KAFKA_CONFIG_QUEUE_BUFFERING_MAX_KBYTES",
    "max.request.size": "set KAFKA_CONFIG_MESSAGE_MAX_BYTES",
    "fetch.max.wait.ms": "set KAFKA_CONFIG_FETCH_WAIT_MAX_MS",
    "default.api.timeout.ms": "set KAFKA_CONFIG_SOCKET_TIMEOUT_MS",
    "receive.buffer.bytes": "set KAFKA_CONFIG_SOCKET_RECEIVE_BUFFER_BYTES",
    "send.buffer.bytes": "set KAFKA_CONFIG_SOCKET_SEND_BUFFER_BYTES",
}

# Properties of one kind of client. If a client gets a property of the other kind, every process logs a warning at every
# start. Properties that the worker sets are left out.
CONSUMER_ONLY = frozenset(
    [
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "group.remote.assignor",
        "coordinator.query.interval.ms",
        "max.poll.interval.ms",
        "queued.min.messages",
        "queued.max.messages.kbytes",
        "fetch.wait.max.ms",
        "fetch.queue.backoff.ms",
        "fetch.message.max.bytes",
        "max.partition.fetch.bytes",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "fetch.error.backoff.ms",
        "check.crcs",
        "auto.offset.reset",
        "consume.callback.max.messages",
    ]
)
PRODUCER_ONLY = frozenset(
    [
        "transaction.timeout.ms",
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.ms",
        "linger.ms",
        "queue.buffering.backpressure.threshold",
        "compression.codec",
        "compression.type",
        "compression.level",
        "batch.num.messages",
        "batch.size",
        "sticky.partitioning.linger.ms",
        "request.timeout.ms",
        "queuing.strategy",
        "produce.offset.report",
    ]
)

# librdkafka's name of a property in its errors -> the name by which the user may have set it.
ALIASES = {
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "queue.buffering.max.ms": "linger.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}


def property_name(key: str) -> str:
    """Return the property that ``KAFKA_CONFIG_<key>`` sets."""
    name = key.lower().replace("_", ".")
    return _UNDERSCORED.get(name, name)


def variable_name(name: str) -> str:
    """Return the variable that sets a property."""
    return PREFIX + name.upper().replace(".", "_")
