"""When a quorum may follow another though several authorities could form one. Pure.

Every step needs every member of its quorum, so a quorum that one member never took up commits
nothing. It is *active* once a member knows that all took it up (a reduction over all has ended);
until then it is *pending*: it may have become active unknown to whom we hear.

The rule: a quorum is formed only if those who will be in it are more than half of the active quorum
and of every pending one that could be the newest. With exactly half it is those with its first
electable member. Who is gone for certain and took up nothing later isn't counted on either side: it
can't have helped another quorum into force and never will. Two such quorums always share a member
of the quorum before, and a member follows one authority at a time, so histories don't fork.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainer_runtime.protocol import ProtocolError

_GONE_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Config:
    """A quorum as far as succession goes. `base`: the highest epoch whose consent it was formed
    with; `key` tells apart quorums of one epoch that different authorities formed. `since`: of its
    members, only those are gone without a trace who took up nothing later than this epoch; 0: its
    own. It is lower where it stands for earlier ones of the same members, too."""

    epoch: int
    base: int
    key: str
    members: tuple[str, ...]  # ids, in rank order
    since: int = 0

    @property
    def traceless(self) -> int:
        return self.since or self.epoch

    def to_list(self) -> list[Any]:
        return [self.epoch, self.base, self.key, list(self.members), self.since]

    @classmethod
    def from_list(cls, raw: Any) -> Config:
        try:
            epoch, base, key, members, since = raw
        except (TypeError, ValueError):
            raise ProtocolError(f"history: must hold lists of five (got {raw!r})") from None
        numbers = all(isinstance(each, int) for each in (epoch, base, since))
        if not (numbers and isinstance(key, str) and isinstance(members, list)
                and all(isinstance(each, str) for each in members)):  # fmt: skip
            raise ProtocolError("history: must be [epoch, base, key, [member ids], since]")
        return cls(epoch, base, key, tuple(members), since)


@dataclass(frozen=True, slots=True)
class Lack:
    """What keeps a quorum from following: of an earlier one `have` are here and `need` are needed,
    `absent` aren't. `need` 0: no quorum is known here or nobody of it is left, and this authority
    may not found another."""

    have: int
    need: int
    absent: tuple[str, ...]


@dataclass(slots=True)
class History:
    """The quorums of a job that may be the newest. Kept by a replica (what it took part in) and by
    an authority (what its replicas told and what it formed)."""

    active: Config | None = None
    pending: dict[str, Config] = field(default_factory=dict)

    @property
    def open(self) -> list[Config]:
        return [*([self.active] if self.active else []), *self.pending.values()]

    @property
    def newest_epoch(self) -> int:
        return max((each.epoch for each in self.open), default=0)

    def take_up(self, config: Config) -> None:
        """It was formed here, or this replica promises to train in it."""
        self.pending[config.key] = config
        self._prune()

    def activate(self, key: str) -> None:
        """All members are known to have taken it up."""
        config = self.pending.pop(key, None)
        if config is not None and (self.active is None or config.epoch > self.active.epoch):
            self.active = replace(config, since=0)
        self._prune()

    def learn(self, other: History) -> None:
        mine, theirs = self.active, other.active
        if theirs is not None and (mine is None or theirs.epoch > mine.epoch):
            self.active = theirs
        for key, each in other.pending.items():
            known = self.pending.get(key, each)
            self.pending[key] = min(known, each, key=lambda config: config.traceless)
        self._prune()

    def _prune(self) -> None:
        """An active quorum rules out every pending one that was formed without its consent."""
        if (active := self.active) is not None:
            self.pending = {
                key: each
                for key, each in self.pending.items()
                if key != active.key and each.base >= active.epoch
            }
        for key, each in sorted(self.pending.items(), key=lambda item: item[1].epoch):
            self._stand_for_earlier(key, each)

    def _stand_for_earlier(self, key: str, config: Config) -> None:
        """One stands for all before it of the same members that consented to it, so that what is
        kept is bounded by the different sets of members, not by the tries."""
        for old_key, old in list(self.pending.items()):
            if old.members == config.members and old.epoch <= config.base and old_key != key:
                config = replace(config, since=min(config.traceless, old.traceless))
                self.pending[key] = config
                del self.pending[old_key]

    def to_dict(self) -> dict[str, Any]:
        return {
            "active": self.active.to_list() if self.active else None,
            "pending": [each.to_list() for each in self.pending.values()],
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any] | None) -> History:
        """Raises ProtocolError."""
        if raw is None:
            return cls()
        if not isinstance(raw, Mapping) or not isinstance(raw.get("pending"), list):
            raise ProtocolError(f"history: must be an object with a list `pending` (got {raw!r})")
        active = Config.from_list(raw["active"]) if raw.get("active") is not None else None
        pending = [Config.from_list(each) for each in raw["pending"]]
        return cls(active, {each.key: each for each in pending})


@dataclass(slots=True)
class Succession:
    """One authority's view of a job, if it is one of several candidates. `founds`: it may form a
    job's first quorum, and one after all of the last are gone for certain; only one of the
    candidates may, and not after a restart."""

    founds: bool
    history: History = field(default_factory=History)
    _gone: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def gone(self, member: str, last_epoch: int) -> None:
        """This member has ended for certain, or promised to take up nothing more."""
        self._gone[member] = last_epoch
        self._gone.move_to_end(member)
        while len(self._gone) > _GONE_KEPT:
            self._gone.popitem(last=False)

    def electorate(self, config: Config) -> list[str]:
        """Members whose consent counts, in rank order."""
        return [
            each
            for each in config.members
            if each not in self._gone or self._gone[each] > config.traceless
        ]

    def extinct(self) -> bool:
        """Nobody is left who could go on with the job."""
        return not any(self.electorate(each) for each in self.history.open)

    def lack(self, present: Collection[str]) -> Lack | None:
        """What keeps those who are `present` from being the next quorum; None if nothing does."""
        if not self.history.open:
            return None if self.founds else Lack(0, 0, ())
        for config in self.history.open:
            counted = self.electorate(config)
            here = [each for each in counted if each in present]
            if not counted and not self.founds:
                return Lack(0, 0, ())
            half = 2 * len(here) == len(counted)
            if counted and (2 * len(here) < len(counted) or (half and here[0] != counted[0])):
                need = (len(counted) + 1) // 2 if counted[0] in here else len(counted) // 2 + 1
                absent = tuple(each for each in counted if each not in present)
                return Lack(len(here), need, absent)
        return None
