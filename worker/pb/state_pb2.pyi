import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from worker.pb import task_pb2 as _task_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskState(_message.Message):
    __slots__ = ("origin", "key", "sequence", "worker", "attempt", "epoch", "started_at", "updated_at", "progress", "message", "checkpoint", "state", "run", "checkpoint_epoch")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    origin: _task_pb2.Origin
    key: bytes
    sequence: int
    worker: str
    attempt: int
    epoch: int
    started_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    progress: float
    message: str
    checkpoint: bytes
    state: str
    run: str
    checkpoint_epoch: int
    def __init__(self, origin: _Optional[_Union[_task_pb2.Origin, _Mapping]] = ..., key: _Optional[bytes] = ..., sequence: _Optional[int] = ..., worker: _Optional[str] = ..., attempt: _Optional[int] = ..., epoch: _Optional[int] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., progress: _Optional[float] = ..., message: _Optional[str] = ..., checkpoint: _Optional[bytes] = ..., state: _Optional[str] = ..., run: _Optional[str] = ..., checkpoint_epoch: _Optional[int] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("origin", "requested_at", "reason")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    origin: _task_pb2.Origin
    requested_at: _timestamp_pb2.Timestamp
    reason: str
    def __init__(self, origin: _Optional[_Union[_task_pb2.Origin, _Mapping]] = ..., requested_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...
