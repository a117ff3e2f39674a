"""Messages between a trainer and the control plane, version 1. Standard library only.

An envelope carries one attempt's messages::

    {"version": 1, "job": "...", "attempt": "...", "sent_at": 1764553200.0,
     "messages": [{"seq": 0, "kind": "step", "at": 1764553199.5, ...}, ...]}

`seq` rises within an attempt, so that a receiver drops what it has seen. Times are seconds since
1970 (UTC); durations are seconds unless the name ends in `_ms`. Fields that a reader doesn't know
are ignored; an unknown version, an unknown kind and a missing or wrong field are refused with
`WireError`. None stands for "not known" and is left out when written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

VERSION = 1
MAX_MESSAGES = 1000
MAX_BYTES = 4 * 1024 * 1024
MAX_TEXT = 4096
MAX_NAME = 253
MAX_LIST = 4096
MAX_PHASES = 32
MAX_WORD = 32
_MAX_TIME = 2.0**36  # year 4147: what a date can still hold
MOST = 1e15  # no measurement is larger, and sums of such numbers stay finite
_MAX_SMALL = 2**31 - 1
_MAX_BIG = 2**63 - 1

Parse = Callable[[str, Any], Any]
T = TypeVar("T")


class WireError(ValueError):
    """A message that can't be taken: `field` is its path, `value` what stood there."""

    def __init__(self, field: str, value: object, message: str) -> None:
        super().__init__(f"{field}: {message} (got {_shown(value)})")
        self.field = field
        self.value = value
        self.message = message


class MessageKind(StrEnum):
    HEARTBEAT = "heartbeat"
    MEMBERSHIP = "membership"
    STEP = "step"
    SCALE = "scale"
    RECOVERY = "recovery"
    CHECKPOINT = "checkpoint"
    LOG_MATCH = "log_match"
    STRAGGLER = "straggler"


class RecoveryStage(StrEnum):
    """Stages of a recovery in order; they don't overlap and their sum is the downtime."""

    DETECT = "detect"
    ABORT = "abort"
    RENDEZVOUS = "rendezvous"
    STATE_RESTORE = "state_restore"
    DATA_LOADER = "data_loader"
    FIRST_STEP = "first_step"


class TrainerState(StrEnum):
    TRAINING = "training"
    WAITING = "waiting"  # below the minimum, state kept in memory
    RECOVERING = "recovering"
    STOPPED = "stopped"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _integer(least: int, most: int) -> Parse:
    def parse(path: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise WireError(path, value, "must be a whole number")
        if not least <= value <= most:
            raise WireError(path, value, f"must be between {least} and {most}")
        return value

    return parse


def _number(least: float | None = None, most: float | None = None) -> Parse:
    def parse(path: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WireError(path, value, "must be a number")
        try:
            number = float(value)
        except OverflowError:
            raise WireError(path, value, "must be finite; leave out what is not known") from None
        if not math.isfinite(number):
            raise WireError(path, value, "must be finite; leave out what is not known")
        if (least is not None and number < least) or (most is not None and number > most):
            raise WireError(path, value, f"must be at least {least} and at most {most}")
        return number

    return parse


def _text(most: int, *, empty: bool = False) -> Parse:
    def parse(path: str, value: Any) -> str:
        if not isinstance(value, str):
            raise WireError(path, value, "must be text")
        if not value and not empty:
            raise WireError(path, value, "must not be empty")
        if len(value) > most:
            raise WireError(path, value, f"must have at most {most} characters")
        if "\x00" in value:
            raise WireError(path, value, "must not contain a NUL character")
        return value

    return parse


def _one_of(kind: type[StrEnum]) -> Parse:
    def parse(path: str, value: Any) -> StrEnum:
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(member.value for member in kind)
            raise WireError(path, value, f"must be one of {known}") from None

    return parse


def _boolean(path: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise WireError(path, value, "must be true or false")
    return value


def _list_of(parse_item: Parse) -> Parse:
    def parse(path: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise WireError(path, value, "must be a list")
        if len(value) > MAX_LIST:
            raise WireError(path, len(value), f"must have at most {MAX_LIST} items")
        return tuple(parse_item(f"{path}[{i}]", item) for i, item in enumerate(value))

    return parse


def _mapping_of(parse_key: Parse, parse_item: Parse, most: int) -> Parse:
    def parse(path: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise WireError(path, value, "must be a JSON object")
        if len(value) > most:
            raise WireError(path, len(value), f"must have at most {most} entries")
        return {
            parse_key(f"{path} (a name)", key): parse_item(f"{path}.{_shown(key)}", item)
            for key, item in value.items()
        }

    return parse


_small = _integer(0, _MAX_SMALL)
_positive = _integer(1, _MAX_SMALL)
_big = _integer(0, _MAX_BIG)
_time = _number(0.0, _MAX_TIME)
_duration = _number(0.0, MOST)
_rate = _number(0.0, MOST)
_value = _number(-MOST, MOST)
_name = _text(MAX_NAME)
_word = _text(MAX_WORD)
_phases = _mapping_of(_word, _rate, MAX_PHASES)
_names = _list_of(_name)
_state = _one_of(TrainerState)
_stage_name = _one_of(RecoveryStage)


def _need(parse: Parse) -> Any:
    return field(metadata={"parse": parse})


def _may(parse: Parse, default: Any = None) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What every message has. `seq` numbers an attempt's messages from 0; `at` is when it was."""

    kind: ClassVar[MessageKind]
    seq: int = _need(_big)
    at: float = _need(_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Message):
    """The trainer is there. `step` counts committed steps."""

    kind: ClassVar[MessageKind] = MessageKind.HEARTBEAT
    state: TrainerState = _need(_state)  # noqa: RUF009
    quorum_id: int | None = _may(_big)
    step: int | None = _may(_big)
    replica: str | None = _may(_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership(Message):
    """Who trains together from here on. `world_size` 0 with state `waiting` means below the
    minimum; `min_replicas` is that minimum. `members` are replica names in rank order; each has
    `ranks_per_replica` of the world's ranks."""

    kind: ClassVar[MessageKind] = MessageKind.MEMBERSHIP
    quorum_id: int = _need(_big)
    world_size: int = _need(_small)
    members: tuple[str, ...] = _need(_names)
    state: TrainerState = _may(_state, TrainerState.TRAINING)  # noqa: RUF009
    min_replicas: int | None = _may(_small)
    ranks_per_replica: int | None = _may(_positive)
    step: int | None = _may(_big)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Message):
    """Progress after the commit of step number `step` (steps committed since the job began).

    `samples_per_s` and `tokens_per_s` are over the whole job, over the time since the last report.
    Of the replica that reports, means a step over the same time: `phases_ms` by phase, and
    `data_wait_ms`. `mfu` is the model FLOPs utilisation, 1.0 being the devices' peak; `grad_norm`
    is this step's, before clipping; `tokens` counts since training began; `bytes_moved` over the
    network by the replica that reports, since the last report.
    """

    kind: ClassVar[MessageKind] = MessageKind.STEP
    step: int = _need(_big)
    total_steps: int | None = _may(_big)
    quorum_id: int | None = _may(_big)
    world_size: int | None = _may(_small)
    global_batch_size: int | None = _may(_big)
    loss: float | None = _may(_value)
    learning_rate: float | None = _may(_rate)
    samples_per_s: float | None = _may(_rate)
    tokens_per_s: float | None = _may(_rate)
    step_ms: float | None = _may(_rate)
    gradient_noise_scale: float | None = _may(_value)
    grad_norm: float | None = _may(_rate)
    mfu: float | None = _may(_rate)
    phases_ms: Mapping[str, float] | None = _may(_phases)
    data_wait_ms: float | None = _may(_rate)
    tokens: int | None = _may(_big)
    bytes_moved: int | None = _may(_big)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """One stage of a recovery or a resize; `start_s` counts from its beginning."""

    stage: RecoveryStage = _need(_stage_name)  # noqa: RUF009
    start_s: float = _need(_duration)
    duration_s: float = _need(_duration)


def _stage(path: str, value: Any) -> StageTime:
    return _build(StageTime, path, value)


_stages = _list_of(_stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Message):
    """A planned change of size took effect. `pause_s` is what it cost the replicas that stayed,
    `stages` what it was spent on."""

    kind: ClassVar[MessageKind] = MessageKind.SCALE
    from_replicas: int = _need(_small)
    to_replicas: int = _need(_small)
    quorum_id: int = _need(_big)
    step: int | None = _may(_big)
    joined: tuple[str, ...] = _may(_names, ())
    left: tuple[str, ...] = _may(_names, ())
    pause_s: float | None = _may(_duration)
    bytes_moved: int | None = _may(_big)
    stages: tuple[StageTime, ...] = _may(_stages, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery(Message):
    """An interruption and how it was overcome. `cause` is a short word such as `replica_lost`,
    `replica_hung` (a hang: its training thread made no progress), `replica_failed`, `step_failed`,
    `restart`; `duration_s` is the downtime; `step` the first one committed afterwards; `lost` and
    `joined` name replicas. `source` is the replica whose state was taken over, or `checkpoint`, and
    `bytes_moved` what the replica that reports sent or received of it."""

    kind: ClassVar[MessageKind] = MessageKind.RECOVERY
    cause: str = _need(_word)
    started_at: float = _need(_time)
    duration_s: float = _need(_duration)
    stages: tuple[StageTime, ...] = _need(_stages)
    quorum_id: int | None = _may(_big)
    step: int | None = _may(_big)
    lost: tuple[str, ...] = _may(_names, ())
    joined: tuple[str, ...] = _may(_names, ())
    repeated_steps: int | None = _may(_big)
    detail: str = _may(_text(MAX_TEXT, empty=True), "")
    bytes_moved: int | None = _may(_big)
    source: str | None = _may(_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Message):
    """A checkpoint was written whole (`complete`) or could not be, with the reason in `detail`."""

    kind: ClassVar[MessageKind] = MessageKind.CHECKPOINT
    step: int = _need(_big)
    complete: bool = _need(_boolean)
    path: str | None = _may(_text(MAX_TEXT))
    size_bytes: int | None = _may(_big)
    duration_s: float | None = _may(_duration)
    detail: str = _may(_text(MAX_TEXT, empty=True), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMatch(Message):
    """A log rule matched, or `missing` says that what it expects did not come. `reason` is a word
    (`instruments.logrules.Reason`); `value` the number found, unknown if there is none or it isn't
    finite."""

    kind: ClassVar[MessageKind] = MessageKind.LOG_MATCH
    rule: str = _need(_name)
    replica: str | None = _may(_name)
    line: str = _may(_text(MAX_TEXT, empty=True), "")
    value: float | None = _may(_value)
    missing: bool = _may(_boolean, False)
    reason: str | None = _may(_word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(Message):
    """A replica is slower than its peers: robust z-score of its own work's time a sample.
    `cleared`: it was, and isn't any more."""

    kind: ClassVar[MessageKind] = MessageKind.STRAGGLER
    replica: str = _need(_name)
    z_score: float = _need(_value)
    work_ms: float | None = _may(_rate)
    median_ms: float | None = _may(_rate)
    cleared: bool = _may(_boolean, False)


_KINDS: tuple[type[Message], ...] = (
    Heartbeat, Membership, Step, Scale, Recovery, Checkpoint, LogMatch, Straggler,
)  # fmt: skip
CLASS_OF: Mapping[MessageKind, type[Message]] = {cls.kind: cls for cls in _KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """`job` is the control plane's id of the job, `attempt` the trainer's id of its life."""

    job: str = _need(_name)
    attempt: str = _need(_text(64))
    sent_at: float = _need(_time)
    messages: tuple[Message, ...] = ()
    version: int = VERSION


def _build(cls: type[T], path: str, raw: Any) -> T:
    if not isinstance(raw, Mapping):
        raise WireError(path or "(body)", raw, "must be a JSON object")
    values: dict[str, Any] = {}
    for each in fields(cls):  # type: ignore[arg-type]
        parse = each.metadata.get("parse")
        if parse is None:
            continue
        value = raw.get(each.name)
        where = f"{path}.{each.name}" if path else each.name
        if value is not None:
            values[each.name] = parse(where, value)
        elif each.default is MISSING:
            raise WireError(where, value, "is required")
    return cls(**values)


def _message(path: str, raw: Any) -> Message:
    if not isinstance(raw, Mapping):
        raise WireError(path, raw, "must be a JSON object")
    kind = raw.get("kind")
    if kind is None:
        raise WireError(f"{path}.kind", kind, "is required")
    return _build(CLASS_OF[MessageKind(_one_of(MessageKind)(f"{path}.kind", kind))], path, raw)


def decode(body: bytes | bytearray | str | Mapping[str, Any]) -> Envelope:
    """Read an envelope, from JSON or from what JSON was parsed to.

    Raises WireError, naming the field by its path (`messages[3].step`).
    """
    if isinstance(body, bytes | bytearray | str):
        if len(body) > MAX_BYTES:
            raise WireError("(body)", len(body), f"must have at most {MAX_BYTES} bytes")
        try:
            body = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise WireError("(body)", None, f"must be JSON: {error}") from None
    if not isinstance(body, Mapping):
        raise WireError("(body)", body, "must be a JSON object")
    version = body.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise WireError("version", version, f"is not known here; this side reads version {VERSION}")
    head = _build(Envelope, "", body)
    raw = body.get("messages")
    if not isinstance(raw, list | tuple):
        raise WireError("messages", raw, "must be a list")
    if len(raw) > MAX_MESSAGES:
        raise WireError("messages", len(raw), f"must have at most {MAX_MESSAGES} items; send fewer")
    messages = tuple(_message(f"messages[{i}]", item) for i, item in enumerate(raw))
    for i in range(1, len(messages)):
        if messages[i].seq <= messages[i - 1].seq:
            raise WireError(f"messages[{i}].seq", messages[i].seq, "must rise within an envelope")
    return Envelope(job=head.job, attempt=head.attempt, sent_at=head.sent_at, messages=messages)


def _plain(value: Any) -> Any:
    if isinstance(value, StageTime | Message):
        named = ((each.name, getattr(value, each.name)) for each in fields(value))
        return {name: _plain(item) for name, item in named if item is not None}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value


def to_dict(envelope: Envelope) -> dict[str, Any]:
    """The envelope as JSON-ready dicts and lists."""
    return {
        "version": envelope.version,
        "job": envelope.job,
        "attempt": envelope.attempt,
        "sent_at": envelope.sent_at,
        "messages": [{"kind": m.kind.value, **_plain(m)} for m in envelope.messages],
    }


def encode(envelope: Envelope) -> bytes:
    """Write an envelope as JSON. What `decode` would refuse is refused here, with WireError."""
    plain = to_dict(envelope)
    decode(plain)
    return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()
