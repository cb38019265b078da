"""The settings themselves: a field for every variable, with its default."""

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
from worker.settings.show import complaints, refused, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _dead_letters(data: dict[str, Any]) -> str:
    return f"{data['request_topics'][0]}.dlq"


class ClientSettings(BaseSettings):
    """What every command needs to know to reach Kafka; nothing about the handler. Durations are seconds.

    Made by ``load`` from the mapping it is given; ``os.environ`` is not read behind one's back.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=False,  # defaults are values, and the validators read texts
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
    """the group every process of every replica joins"""
    dead_letter_topic: values.Topic = Field(default_factory=_dead_letters, validation_alias="KAFKA_DEAD_LETTER_TOPIC")
    """where requests go that can never succeed"""
    group_protocol: values.GroupProtocol = Field("auto", validation_alias="KAFKA_GROUP_PROTOCOL")
    """consumer, classic, or auto"""
    connect_timeout: values.LimitDuration = Field(60.0, validation_alias="KAFKA_CONNECT_TIMEOUT")
    """how long the start waits for the broker and the topics"""
    http_port: values.Port = Field(8080, validation_alias="WORKER_HTTP_PORT")
    """port of /livez, /readyz, /metrics and /tasks; 0: off"""

    properties: dict[str, str | SecretStr] = Field(default={}, repr=False)
    """``KAFKA_CONFIG_*`` by librdkafka's name of the property"""
    files: dict[str, str] = Field(default={}, repr=False)
    """the variables and properties whose value was read from a file, with its path"""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature, here and below
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Nothing but what ``load`` has read: pydantic's own sources know neither ``*_FILE`` nor misspelt names."""
        return (init_settings,)

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Self:
        """Read and check everything. Raises SettingsError with a line for each problem."""
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
            return None, complaints(error, reading, meanings)
        return settings, [*settings._misfits()]  # noqa: SLF001 - of this class

    def _misfits(self) -> Iterator[str]:
        yield from checks.topics(self)

    @classmethod
    def _names(cls) -> dict[str, str]:
        """The variable of each field that has one."""
        return {
            field: info.validation_alias
            for field, info in cls.model_fields.items()
            if isinstance(info.validation_alias, str)
        }

    @classmethod
    def variables(cls) -> frozenset[str]:
        """The names of the variables read here, ``KAFKA_CONFIG_*`` aside."""
        return frozenset(cls._names().values())

    def describe(self) -> list[tuple[str, str, bool]]:
        """Each variable, its value as it may be shown, and whether that is the default."""
        rows = [
            (name, shown(name, getattr(self, field), self.files.get(name)), field not in self.model_fields_set)
            for field, name in self._names().items()
        ]
        return rows + [
            (variable_name(name), shown(name, value, self.files.get(name)), False)
            for name, value in sorted(self.properties.items())
        ]

    def __repr__(self) -> str:
        """As ``describe`` shows it: no secrets."""
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value, _ in self.describe())})"

    __str__ = __repr__

    def link(self) -> Link:
        """What the properties of clients are made from; here the secrets come out."""
        given = {name: v.get_secret_value() if isinstance(v, SecretStr) else v for name, v in self.properties.items()}
        return Link(self.bootstrap, self.group, given, self._holds())

    def _holds(self) -> dict[str, float]:
        return {}

    def client_properties(self) -> Properties:
        """How a tool's client reaches the brokers, secrets included."""
        return common(self.link(), "worker-tool")


class Settings(ClientSettings):
    """All settings of ``worker run``."""

    handler: values.Reference = Field(validation_alias="WORKER_HANDLER")
    """the function that does the work, package.module:function"""
    handler_kwargs: values.JsonObject = Field({}, validation_alias="WORKER_HANDLER_KWARGS", repr=False)
    """keyword arguments of the handler"""
    processes: values.Processes = Field("auto", validation_alias="WORKER_PROCESSES")
    """processes per replica, or auto: one per usable CPU"""
    guarantee: values.Guarantee = Field("at-least-once", validation_alias="WORKER_GUARANTEE")
    """how often a request may be answered"""
    ordering: values.Ordering = Field("partition", validation_alias="WORKER_ORDERING")
    """within what requests are run in order"""
    batch_size: values.Count = Field(1, validation_alias="WORKER_BATCH_SIZE")
    """how many requests the handler gets at once"""
    batch_wait: values.Duration = Field(0.0, validation_alias="WORKER_BATCH_WAIT")
    """how long the first request of a batch waits for others"""
    batch_per_partition: values.Switch = Field(default=False, validation_alias="WORKER_BATCH_PER_PARTITION")
    """on: a batch is of one partition, the partitions taking turns"""
    peek: values.Amount = Field(0, validation_alias="WORKER_PEEK")
    """how many of the next requests a handler of single tasks is shown"""
    max_attempts: values.Count = Field(3, validation_alias="WORKER_MAX_ATTEMPTS")
    """starts without a good finish before a request is a dead letter"""
    retry_backoff: values.Delays = Field(values.Backoff(1.0, 300.0), validation_alias="WORKER_RETRY_BACKOFF")
    """first and greatest delay between attempts"""
    offset_store: values.OptionalReference = Field("", validation_alias="WORKER_OFFSET_STORE")
    """a factory of the store that holds results and offsets together, package.module:function"""
    store_url: values.Text = Field("", validation_alias="WORKER_STORE_URL", repr=False)
    """the database of the shipped store, as SQLAlchemy writes it"""
    replica: values.ReplicaName = Field("", validation_alias="WORKER_REPLICA")
    """the replica's name, its own and the same after every restart; by default the host's"""
    static_membership: values.StaticMembership = Field("auto", validation_alias="KAFKA_STATIC_MEMBERSHIP")
    """whether a process that is started again gets its partitions back without a rebalance: on, off, or auto"""
    commit_every: values.Count = Field(1, validation_alias="KAFKA_COMMIT_EVERY")
    """after how many answers to commit"""
    commit_interval: values.LimitDuration = Field(5.0, validation_alias="KAFKA_COMMIT_INTERVAL")
    """how long an answer waits for its commit at most, where KAFKA_COMMIT_EVERY is more than 1"""
    commit_mode: values.CommitMode = Field("async", validation_alias="KAFKA_COMMIT_MODE")
    """async, or sync: the poll loop waits for every commit"""
    revoke_hold: values.Duration = Field(86_400.0, validation_alias="WORKER_REVOKE_HOLD")
    """how long a revoked partition may wait for its running task under the consumer protocol"""
    revoke_hold_classic: values.Duration = Field(60.0, validation_alias="WORKER_REVOKE_HOLD_CLASSIC")
    """the same under the classic protocol, where it holds up the group"""
    drain_timeout: values.Duration = Field(0.0, validation_alias="WORKER_DRAIN_TIMEOUT")
    """how long SIGTERM waits for running tasks; 0: no limit"""
    liveness_timeout: values.LimitDuration = Field(60.0, validation_alias="WORKER_LIVENESS_TIMEOUT")
    """after how long without a turn of its poll loop, and without using CPU, a process counts as stuck"""
    log_level: values.LogLevel = Field("INFO", validation_alias="WORKER_LOG_LEVEL")
    """least level of the lines that are logged"""
    log_format: values.LogFormat = Field("auto", validation_alias="WORKER_LOG_FORMAT")
    """console, json, or auto: console on a terminal"""

    def _misfits(self) -> Iterator[str]:
        yield from super()._misfits()
        yield from checks.limits(self)
        yield from checks.combinations(self)

    def _holds(self) -> dict[str, float]:
        """Seconds a revoked partition may be held, by the protocols to try in this order."""
        holds = {"consumer": self.revoke_hold, "classic": self.revoke_hold_classic}
        return holds if self.group_protocol == "auto" else {self.group_protocol: holds[self.group_protocol]}


VARIABLES = Settings.variables()


def _guarded(name: str, variable: Variable) -> str | SecretStr:
    """A property's value; one that looks secret, or stood in a file, shows itself to nobody by accident."""
    return SecretStr(variable.text) if variable.file or looks_secret(name) else variable.text
