"""The settings: a field for every variable, with its default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from worker.errors import SettingsError
from worker.kafka.names import variable_name
from worker.kafka.properties import Link, Properties, common
from worker.settings import checks, values
from worker.settings.environment import Reading, Variable, read
from worker.settings.masking import looks_secret
from worker.settings.show import problems_of, refused, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _dead_letters(data: dict[str, Any]) -> str:
    return f"{data['request_topics'][0]}.dlq"


class ClientSettings(BaseSettings):
    """The settings that every command needs to reach Kafka. Durations are in seconds.

    Use ``load``, which reads only the mapping that it gets.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=False,  # validators parse texts, but defaults are values
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    bootstrap: values.Addresses = Field(validation_alias="KAFKA_BOOTSTRAP_SERVER")
    """broker list, host:port"""
    request_topics: values.Topics = Field(validation_alias="KAFKA_REQUEST_TOPIC")
    """topic, or comma-separated topics, of Request messages"""
    ack_topic: values.Topic = Field(validation_alias="KAFKA_ACK_TOPIC")
    """topic of Response messages"""
    group: values.Text = Field(validation_alias="KAFKA_CONSUMER_GROUP_ID")
    """the group that every process of every replica joins"""
    dead_letter_topic: values.Topic = Field(default_factory=_dead_letters, validation_alias="KAFKA_DEAD_LETTER_TOPIC")
    """topic of the requests that failed for good"""
    message_format: values.MessageFormat = Field("protobuf", validation_alias="WORKER_FORMAT")
    """format of requests and answers: protobuf, or json for protobuf's JSON mapping"""
    state_topic: values.OptionalTopic = Field("", validation_alias="KAFKA_STATE_TOPIC")
    """compacted topic with the state of long tasks; without it no checkpoints, no detached tasks and no cancelling"""
    group_protocol: values.GroupProtocol = Field("auto", validation_alias="KAFKA_GROUP_PROTOCOL")
    """consumer, classic, or auto"""
    connect_timeout: values.LimitDuration = Field(60.0, validation_alias="KAFKA_CONNECT_TIMEOUT")
    """how long the worker waits at its start for the broker and the topics"""
    http_port: values.Port = Field(8080, validation_alias="WORKER_HTTP_PORT")
    """port of /livez, /readyz, /metrics and /tasks; 0 turns them off"""

    properties: dict[str, str | SecretStr] = Field(default={}, repr=False)
    """``KAFKA_CONFIG_*`` by librdkafka's name of the property"""
    files: dict[str, str] = Field(default={}, repr=False)
    """the variables and properties whose values were read from files, with the paths"""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature, here and below
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only what ``load`` has read: pydantic's sources support neither ``*_FILE`` nor misspelt names."""
        return (init_settings,)

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Self:
        """Read and check everything. Raise SettingsError with a line for each problem."""
        reading = read(environ, VARIABLES)
        del environ  # a traceback that shows locals would show every secret in it
        settings, problems = cls._build(reading)
        problems = [*reading.problems, *problems, *refused(reading.properties)]
        if settings is None or problems:
            raise SettingsError("\n".join(problems))
        return settings

    @classmethod
    def _build(cls, reading: Reading) -> tuple[Self | None, list[str]]:
        ours = {name: variable for name, variable in reading.variables.items() if name in cls.variables()}
        files = {name: v.file for name, v in (ours | reading.properties).items() if v.file is not None}
        properties = {name: _guarded(name, variable) for name, variable in reading.properties.items()}
        try:
            settings = cls.model_validate(
                {name: v.text for name, v in ours.items()} | {"properties": properties, "files": files}
            )
        except ValidationError as error:
            meanings = {name: cls.model_fields[field].description or "" for field, name in cls._names().items()}
            return None, problems_of(error, reading, meanings)
        return settings, [*settings._misfits()]  # noqa: SLF001 - of this class

    def _misfits(self) -> Iterator[str]:
        yield from checks.topics(self)

    @classmethod
    def _names(cls) -> dict[str, str]:
        """Return the variable of each field that has one."""
        return {
            field: info.validation_alias
            for field, info in cls.model_fields.items()
            if isinstance(info.validation_alias, str)
        }

    @classmethod
    def variables(cls) -> frozenset[str]:
        """Return the names of the variables read here, without ``KAFKA_CONFIG_*``."""
        return frozenset(cls._names().values())

    def describe(self) -> list[tuple[str, str, bool]]:
        """Return each variable, its value with secrets masked, and whether it is the default."""
        rows = [
            (name, shown(name, getattr(self, field), self.files.get(name)), field not in self.model_fields_set)
            for field, name in self._names().items()
        ]
        return rows + [
            (variable_name(name), shown(name, value, self.files.get(name)), False)
            for name, value in sorted(self.properties.items())
        ]

    def __repr__(self) -> str:
        """Return the text of ``describe``, without secrets."""
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value, _ in self.describe())})"

    __str__ = __repr__

    def link(self) -> Link:
        """Return the source of all client properties, with the secrets in clear."""
        given = {name: v.get_secret_value() if isinstance(v, SecretStr) else v for name, v in self.properties.items()}
        return Link(self.bootstrap, self.group, given, self._holds())

    def _holds(self) -> dict[str, float]:
        return {}

    def client_properties(self) -> Properties:
        """Return the properties of a tool's client, with the secrets in clear."""
        return common(self.link(), "worker-tool")


class Settings(ClientSettings):
    """All settings of ``worker run``."""

    handler: values.Reference = Field(validation_alias="WORKER_HANDLER")
    """the handler function, package.module:function"""
    handler_kwargs: values.JsonObject = Field({}, validation_alias="WORKER_HANDLER_KWARGS", repr=False)
    """keyword arguments of the handler"""
    processes: values.Processes = Field("auto", validation_alias="WORKER_PROCESSES")
    """processes per replica, or auto: one per usable CPU"""
    guarantee: values.Guarantee = Field("at-least-once", validation_alias="WORKER_GUARANTEE")
    """delivery guarantee: at-least-once, at-most-once, exactly-once"""
    ordering: values.Ordering = Field("partition", validation_alias="WORKER_ORDERING")
    """scope of the order: partition, key, unordered"""
    batch_size: values.Count = Field(1, validation_alias="WORKER_BATCH_SIZE")
    """requests per batch; more than 1: the handler gets batches"""
    batch_wait: values.Duration = Field(0.0, validation_alias="WORKER_BATCH_WAIT")
    """how long the first request of a batch waits for others"""
    batch_per_partition: values.Switch = Field(default=False, validation_alias="WORKER_BATCH_PER_PARTITION")
    """on: each batch has records of one partition only, partitions are served round-robin"""
    peek: values.Amount = Field(0, validation_alias="WORKER_PEEK")
    """how many upcoming requests a handler of single tasks can see"""
    max_attempts: values.Count = Field(3, validation_alias="WORKER_MAX_ATTEMPTS")
    """failed attempts after which a request becomes a dead letter"""
    retry_backoff: values.Delays = Field(values.Backoff(1.0, 300.0), validation_alias="WORKER_RETRY_BACKOFF")
    """first and greatest delay between attempts"""
    echo_headers: values.HeaderNames = Field(
        ("traceparent", "tracestate", "correlation-id"), validation_alias="WORKER_ECHO_HEADERS"
    )
    """request headers that come back on the answer, or none"""
    isolation: values.Isolation = Field("thread", validation_alias="WORKER_ISOLATION")
    """thread, or process: the handler runs in a child process, which can be killed"""
    task_timeout: values.Duration = Field(0.0, validation_alias="WORKER_TASK_TIMEOUT")
    """how long one attempt may take; 0: no limit"""
    cancel_grace: values.Duration = Field(5.0, validation_alias="WORKER_CANCEL_GRACE")
    """how long a cancelled task may continue"""
    task_memory: values.Size = Field(0, validation_alias="WORKER_TASK_MEMORY")
    """resident memory of a task's child process and all it starts; 0: no limit"""
    child_max_tasks: values.Amount = Field(0, validation_alias="WORKER_CHILD_MAX_TASKS")
    """after how many tasks a child process is replaced; 0: never"""
    child_max_memory: values.Size = Field(0, validation_alias="WORKER_CHILD_MAX_MEMORY")
    """at what resident memory a child process is replaced between two tasks; 0: never"""
    extra_slots: values.Amount = Field(0, validation_alias="WORKER_EXTRA_SLOTS")
    """how many requests may run beside a long task of the same process, each in a child process"""
    long_after: values.LongAfter = Field("auto", validation_alias="WORKER_LONG_AFTER")
    """how long a task has run when it is announced on the state topic, or auto: 12 heartbeats of the group"""
    offset_store: values.OptionalReference = Field("", validation_alias="WORKER_OFFSET_STORE")
    """a factory of the store that holds results and offsets together, package.module:function"""
    store_url: values.Text = Field("", validation_alias="WORKER_STORE_URL", repr=False)
    """the database of the included store, as a SQLAlchemy URL"""
    replica: values.ReplicaName = Field("", validation_alias="WORKER_REPLICA")
    """name of the replica, unique and the same after a restart; default: the host name"""
    static_membership: values.StaticMembership = Field("auto", validation_alias="KAFKA_STATIC_MEMBERSHIP")
    """whether processes are static members of the group: on, off, or auto"""
    commit_every: values.Count = Field(1, validation_alias="KAFKA_COMMIT_EVERY")
    """answers per commit"""
    commit_interval: values.LimitDuration = Field(5.0, validation_alias="KAFKA_COMMIT_INTERVAL")
    """longest time between an answer and its commit, with KAFKA_COMMIT_EVERY above 1"""
    commit_mode: values.CommitMode = Field("async", validation_alias="KAFKA_COMMIT_MODE")
    """async, or sync: no task starts while a commit is not confirmed"""
    revoke_hold: values.Duration = Field(86_400.0, validation_alias="WORKER_REVOKE_HOLD")
    """how long a revoked partition waits for its running task, consumer protocol"""
    revoke_hold_classic: values.Duration = Field(60.0, validation_alias="WORKER_REVOKE_HOLD_CLASSIC")
    """the same under the classic protocol, where the whole group waits too"""
    drain_timeout: values.Duration = Field(0.0, validation_alias="WORKER_DRAIN_TIMEOUT")
    """how long running tasks may continue after SIGTERM; 0: no limit"""
    liveness_timeout: values.LimitDuration = Field(60.0, validation_alias="WORKER_LIVENESS_TIMEOUT")
    """time without a turn of the main loop and without CPU use after which a process counts as stuck"""
    log_level: values.LogLevel = Field("INFO", validation_alias="WORKER_LOG_LEVEL")
    """lowest level that is logged"""
    log_format: values.LogFormat = Field("auto", validation_alias="WORKER_LOG_FORMAT")
    """console, json, or auto: console on a terminal"""

    def _misfits(self) -> Iterator[str]:
        yield from super()._misfits()
        yield from checks.limits(self)
        yield from checks.combinations(self)

    def _holds(self) -> dict[str, float]:
        """Return the seconds that a revoked partition may be held, by protocol, in the order in which they
        are tried.
        """
        holds = {"consumer": self.revoke_hold, "classic": self.revoke_hold_classic}
        return holds if self.group_protocol == "auto" else {self.group_protocol: holds[self.group_protocol]}


VARIABLES = Settings.variables()


def _guarded(name: str, variable: Variable) -> str | SecretStr:
    """Return the value of a property, as SecretStr if it looks secret or was read from a file."""
    return SecretStr(variable.text) if variable.file or looks_secret(name) else variable.text
