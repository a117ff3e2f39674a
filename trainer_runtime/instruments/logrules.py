r"""Rules over the lines that ranks print: a pattern, and what it must or must not say.

    - name: loss
      pattern: 'loss[ =:]+(\S+)'
      expect_within_s: 600        # the first must come within this after the start
      recur_every_s: 120          # and then one at least this often
      above: 20                   # alarm when the number in the group is above it, or is NaN
    - name: cuda
      pattern: 'CUDA error'       # with none of these: alarm at each match

Every rank is watched by itself. `LogWatch.feed` takes lines, `tick` the time; both return what
`wire.LogMatch` carries. The `regex` package searches, since it can be stopped: a pattern that
backtracks without end costs its rule, not the watch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any, TypedDict

import regex
import yaml

from trainer_runtime.wire import MOST

MAX_RULES = 100
MAX_PATTERN = 1000
MAX_LINE = 4096  # characters of a line that are looked at, and that a report can carry
SEARCH_S = 0.05  # of CPU for one search, at most
STRIKES = 3  # searches stopped before a rule is given up


class Reason(StrEnum):
    MATCH = "match"
    ABOVE = "above"
    BELOW = "below"
    NAN = "nan"
    NOT_A_NUMBER = "not_a_number"  # the group holds something else: the rule is wrong
    MISSING_START = "missing_start"
    MISSING_RECURRENCE = "missing_recurrence"
    GIVEN_UP = "given_up"  # the pattern takes too long; the rule is off


class LogMatchValues(TypedDict):
    """Values of a `wire.LogMatch`, for `Telemetry.report(wire.LogMatch, quorum=..., **values)`."""

    rule: str
    replica: str
    line: str
    value: float | None
    missing: bool
    reason: str


class RuleError(ValueError):
    """A rule that can't be taken: says which, which field, and what stood there."""

    def __init__(self, rule: str, field: str, value: object, message: str) -> None:
        super().__init__(f"rule {rule}: {field}: {message} (got {str(value)[:80]!r})")
        self.rule, self.field = rule, field


@dataclass(frozen=True, slots=True)
class LogRule:
    """One rule, as read by `parse_rules`. `group` is the number or name of the pattern's group that
    is read as a float, where `above` or `below` is set; `nan`: `alarm` or `ignore`. After an alarm
    the same one (rule, rank, reason) is kept back for `quiet_s` seconds."""

    name: str
    pattern: regex.Pattern[str]
    expect_within_s: float | None = None
    recur_every_s: float | None = None
    above: float | None = None
    below: float | None = None
    group: int | str = 1
    nan: str = "alarm"
    quiet_s: float = 10.0

    @property
    def measures(self) -> bool:
        return self.above is not None or self.below is not None

    @property
    def expects(self) -> bool:
        return self.expect_within_s is not None or self.recur_every_s is not None

    def judge(self, found: regex.Match[str]) -> tuple[Reason | None, float | None]:
        """Whether this match is an alarm, and the number it holds if that is finite."""
        if not self.measures:
            # A line that is waited for is good news.
            return (None if self.expects else Reason.MATCH), None
        text = found.group(self.group)
        try:
            value = float(text)
        except (TypeError, ValueError):  # TypeError: the group took no part
            return Reason.NOT_A_NUMBER, None
        known = value if math.isfinite(value) else None
        if math.isnan(value):
            return (Reason.NAN if self.nan == "alarm" else None), None
        if self.above is not None and value > self.above:
            return Reason.ABOVE, known
        if self.below is not None and value < self.below:
            return Reason.BELOW, known
        return None, known


@dataclass(slots=True)
class _Watched:
    """One rule on one rank. Times are the caller's, in seconds."""

    since: float
    last: float | None = None  # match
    told_missing: bool = False


class LogWatch:
    """Thread-safe. `now` is a monotonic time in seconds, the same clock everywhere."""

    def __init__(self, rules: Iterable[LogRule]) -> None:
        self.rules = tuple(rules)
        self._lock = Lock()
        self._ranks: dict[str, dict[str, _Watched]] = {}
        self._told: dict[tuple[str, str, Reason], float] = {}
        self._strikes: dict[str, int] = {}

    def start(self, replica: str, now: float) -> None:
        """The rank started (again): what is expected of it counts from here. Without this it
        counts from the rank's first line."""
        with self._lock:
            self._ranks[replica] = {rule.name: _Watched(now) for rule in self.rules}

    def stop(self, replica: str) -> None:
        """The rank ended: nothing is expected of it any more."""
        with self._lock:
            self._ranks.pop(replica, None)
            self._told = {key: at for key, at in self._told.items() if key[1] != replica}

    def feed(self, replica: str, line: str, now: float) -> list[LogMatchValues]:
        """A line that the rank printed."""
        line = printable(line)
        if replica not in self._ranks:
            self.start(replica, now)
        out = []
        for rule in self.rules:
            if self._strikes.get(rule.name, 0) >= STRIKES:
                continue
            try:
                found = rule.pattern.search(line, timeout=SEARCH_S)
            except TimeoutError:
                out += self._strike(rule, replica, line, now)
                continue
            if found is not None:
                self._seen(rule, replica, now)
                reason, value = rule.judge(found)
                if reason is not None:
                    out += self._tell(rule, replica, reason, now, line=line, value=value)
        return out

    def tick(self, now: float) -> list[LogMatchValues]:
        """What should have come by now and didn't; each gap is told once."""
        out = []
        for rule in self.rules:
            if not rule.expects or self._strikes.get(rule.name, 0) >= STRIKES:
                continue
            with self._lock:
                overdue = [
                    (replica, reason)
                    for replica, watched in self._ranks.items()
                    if (reason := _overdue(rule, watched[rule.name], now)) is not None
                ]
            for replica, reason in overdue:
                out.append(_values(rule, replica, reason))
        return out

    def _seen(self, rule: LogRule, replica: str, now: float) -> None:
        with self._lock:
            watched = self._ranks.get(replica, {}).get(rule.name)
            if watched is not None:
                watched.last, watched.told_missing = now, False

    def _strike(self, rule: LogRule, replica: str, line: str, now: float) -> list[LogMatchValues]:
        with self._lock:
            self._strikes[rule.name] = strikes = self._strikes.get(rule.name, 0) + 1
        if strikes != STRIKES:
            return []
        return self._tell(rule, replica, Reason.GIVEN_UP, now, line=line)

    def _tell(
        self, rule: LogRule, replica: str, reason: Reason, now: float, *, line: str,
        value: float | None = None,
    ) -> list[LogMatchValues]:  # fmt: skip
        key = (rule.name, replica, reason)
        with self._lock:
            told = self._told.get(key)
            if told is not None and now - told < rule.quiet_s:
                return []
            self._told[key] = now
        return [_values(rule, replica, reason, line=line, value=value)]


def _overdue(rule: LogRule, watched: _Watched, now: float) -> Reason | None:
    if watched.told_missing:
        return None
    if watched.last is None:
        least, since, reason = rule.expect_within_s, watched.since, Reason.MISSING_START
    else:
        least, since, reason = rule.recur_every_s, watched.last, Reason.MISSING_RECURRENCE
    if least is None or now - since <= least:
        return None
    watched.told_missing = True
    return reason


def _values(
    rule: LogRule, replica: str, reason: Reason, *, line: str = "", value: float | None = None
) -> LogMatchValues:
    missing = reason in (Reason.MISSING_START, Reason.MISSING_RECURRENCE)
    if value is not None and abs(value) > MOST:
        value = None  # more than a report can carry; the line has it
    return LogMatchValues(
        rule=rule.name, replica=replica, line=line, value=value, missing=missing,
        reason=reason.value,
    )  # fmt: skip


def printable(line: str) -> str:
    """As a report can carry it: no end of line, NUL or half character, at most MAX_LINE long."""
    line = line[:MAX_LINE].rstrip("\r\n").replace("\x00", "\ufffd")
    return line.encode("utf-8", "replace").decode()


# ---- reading rules -------------------------------------------------------------------------


def load_rules(path: Path) -> tuple[LogRule, ...]:
    """From a YAML or JSON file. Raises RuleError, and ValueError for what is neither."""
    try:
        raw = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: must be YAML or JSON: {error}") from None
    return parse_rules(raw)


def parse_rules(raw: object) -> tuple[LogRule, ...]:
    """A list of rules, or a mapping with one under `rules`. Raises RuleError."""
    if isinstance(raw, Mapping) and raw.keys() == {"rules"}:
        raw = raw["rules"]
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise RuleError("(all)", "rules", raw, "must be a list of rules")
    if len(raw) > MAX_RULES:
        raise RuleError("(all)", "rules", len(raw), f"must be at most {MAX_RULES}")
    rules = tuple(_rule(number, each) for number, each in enumerate(raw, 1))
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise RuleError(name, "name", name, "must be given once")
    return rules


def _rule(number: int, raw: object) -> LogRule:
    if not isinstance(raw, Mapping):
        raise RuleError(str(number), "(rule)", raw, "must be a mapping with name and pattern")
    name = raw.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= 63:
        raise RuleError(str(number), "name", name, "must be text of 1 to 63 characters")
    known = [each.name for each in fields(LogRule)]
    for field in raw:
        if field not in known:
            raise RuleError(name, str(field), raw[field], f"isn't known; known: {', '.join(known)}")
    values = {
        field: _FIELDS[field](name, field, value)
        for field, value in raw.items()
        if field != "name" and value is not None
    }
    if "pattern" not in values:
        raise RuleError(name, "pattern", raw.get("pattern"), "is required")
    rule = LogRule(name=name, **values)
    if rule.measures:
        groups: set[int | str] = {*range(rule.pattern.groups + 1), *rule.pattern.groupindex}
        if rule.group not in groups:
            raise RuleError(name, "group", rule.group, "must be a group of the pattern: add (...)")
    return rule


def _pattern(rule: str, field: str, value: object) -> regex.Pattern[str]:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_PATTERN:
        message = f"must be a regular expression of 1 to {MAX_PATTERN} characters"
        raise RuleError(rule, field, value, message)
    try:
        return regex.compile(value)
    except (regex.error, RecursionError, OverflowError) as error:
        raise RuleError(rule, field, value, f"must be a regular expression: {error}") from None


def _number(rule: str, field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RuleError(rule, field, value, "must be a number")
    try:
        number = float(value)
    except OverflowError:
        raise RuleError(rule, field, value, "must be a number that a float holds") from None
    if math.isnan(number):
        raise RuleError(rule, field, value, "must be a number")
    return number


def _seconds(rule: str, field: str, value: object) -> float:
    seconds = _number(rule, field, value)
    if not 0 < seconds < math.inf:
        raise RuleError(rule, field, value, "must be seconds, above 0")
    return seconds


def _group(rule: str, field: str, value: object) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise RuleError(rule, field, value, "must be a group's number or name")
    return value


def _nan(rule: str, field: str, value: object) -> str:
    if value not in ("alarm", "ignore"):
        raise RuleError(rule, field, value, "must be alarm or ignore")
    return str(value)


_FIELDS: Mapping[str, Callable[[str, str, object], Any]] = {
    "pattern": _pattern, "expect_within_s": _seconds, "recur_every_s": _seconds, "above": _number,
    "below": _number, "group": _group, "nan": _nan, "quiet_s": _seconds,
}  # fmt: skip
