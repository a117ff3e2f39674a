"""Several authorities over one job: whatever is cut off, dies or restarts, one history."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_runtime.members import Timing
from trainer_runtime.membership import Membership
from trainer_runtime.protocol import ProtocolError, Quorum
from trainer_runtime.route import Route
from trainer_runtime.succession import Config, History, Lack, Succession

ABCD = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("members", "present", "gone", "want"),
    [
        ("abc", "ab", {}, None),
        ("abc", "a", {}, Lack(1, 2, ("b", "c"))),
        ("abcd", "ab", {}, None),  # a half with the first
        ("abcd", "bc", {}, Lack(2, 3, ("a", "d"))),
        ("abcd", "bcd", {}, None),
        ("ab", "b", {}, Lack(1, 2, ("a",))),
        ("ab", "b", {"a": 5}, None),  # dead for certain
        ("ab", "b", {"a": 6}, Lack(1, 2, ("a",))),  # it had taken up a later one
        ("abcd", "c", {"a": 5, "b": 4}, None),  # the first of those who count
        ("abcd", "d", {"a": 5, "b": 4}, Lack(1, 2, ("c",))),
        ("ab", "x", {"a": 5, "b": 5}, Lack(0, 0, ())),  # nobody is left who could go on
        ("abc", "abx", {}, None),
    ],
)
def test_majority(members: str, present: str, gone: dict[str, int], want: Lack | None) -> None:
    it = Succession(founds=False, history=History(Config(5, 4, "k5", tuple(members))))
    for name, epoch in gone.items():
        it.gone(name, epoch)
    assert it.lack(set(present)) == want


def test_only_a_founder_begins() -> None:
    assert Succession(founds=False).lack({"a"}) == Lack(0, 0, ())
    assert Succession(founds=True).lack({"a"}) is None
    for founds in (True, False):
        it = Succession(founds, History(Config(1, 0, "k1", ("a",))))
        it.gone("a", 1)
        assert (it.lack({"b"}) is None) is founds


def test_pending_ones_want_their_majority_too() -> None:
    history = History(Config(5, 4, "k5", ("a", "b", "c")))
    history.take_up(Config(6, 5, "k6", (*"abc", *"defg")))
    assert Succession(False, history).lack({"a", "b", "c"}) == Lack(3, 4, ("d", "e", "f", "g"))
    # Once the newer is known to be in force only it counts, and what it ruled out doesn't.
    history.take_up(Config(6, 5, "other", ("a", "x", "y")))
    history.activate("k6")
    assert Succession(False, history).lack({"d", "e", "f", "g"}) is None
    assert history.pending == {}


def test_tries_of_the_same_members_are_kept_as_one() -> None:
    history = History(Config(5, 4, "k5", ABCD))
    for epoch in range(6, 40):
        history.take_up(Config(epoch, epoch - 1, f"k{epoch}", ABCD))
    assert list(history.pending.values()) == [Config(39, 38, "k39", ABCD, since=6)]
    # Who died after the first try may have helped it into force.
    it = Succession(False, history)
    it.gone("a", 20)
    assert it.electorate(history.pending["k39"]) == list(ABCD)


def test_history_travels() -> None:
    history = History(Config(5, 4, "k5", ABCD))
    history.take_up(Config(6, 5, "k6", ("a", "b")))
    assert History.from_dict(history.to_dict()) == history
    assert History.from_dict(None) == History()


@pytest.mark.parametrize(
    "raw", [[], {}, {"pending": 3}, {"pending": [[1, 2]]}, {"pending": [[1, 2, "k", [3], 0]]}]
)
def test_history_refused(raw: Any) -> None:
    with pytest.raises(ProtocolError, match="history"):
        History.from_dict(raw)


def test_route_tries_all_then_comes_back() -> None:
    route = Route([("a", 1), ("b", 2), ("c", 3)], random.Random(0))
    route.begin()
    seen = [route.address[0]]
    for connected in (True, False, False, False, True):
        route.next(connected=connected)
        seen.append(route.address[0])
    assert seen == ["a", "b", "c", "a", "b", "a"]
    assert Route([("a", 1)]).several is False


# ---- the property ---------------------------------------------------------------------------


@dataclass
class Replica:
    """As far as succession goes: what client.py does. `steps` is its committed history."""

    id: str
    history: History = field(default_factory=History)
    epoch: int = 0
    key: str = ""
    quorum: tuple[str, ...] = ()
    term: int = 0
    term_of: str = ""
    parked: bool = True
    live: bool = False
    state_epoch: int = 0
    steps: tuple[str, ...] = ()
    at: int | None = None
    offered: Quorum | None = None
    of: str = ""
    fenced: bool = False
    changing: bool = False
    alive: bool = True

    def hello(self) -> dict[str, Any]:
        return {
            "name": self.id, "epoch": self.epoch, "state_epoch": self.state_epoch,
            "step": len(self.steps), "live": self.live, "parked": self.parked, "key": self.key,
            "quorum": list(self.quorum), "term": self.term, "term_of": self.term_of,
            "history": self.history.to_dict(),
        }  # fmt: skip


class Universe:
    """Replicas, candidate authorities and what goes on between them, in any order."""

    def __init__(self, replicas: int, candidates: int) -> None:
        self.now, self.made = 0.0, 0
        self.replicas: dict[str, Replica] = {}
        self.up = [self.authority(first=each == 0) for each in range(candidates)]
        self.newest: tuple[str, ...] = ()  # the history of the last commit
        self.commits = 0
        for _ in range(replicas):
            self.join()

    def authority(self, *, first: bool) -> Membership:
        self.made += 1
        return Membership(
            "j", f"inc{self.made}", 1, Timing(1e9, 1e9, 1.0), lambda: 1, Succession(founds=first)
        )

    def join(self) -> None:
        self.made += 1
        name = f"r{self.made}#1"
        self.replicas[name] = Replica(name)

    def tell(self, where: int, messages: list[Any]) -> None:
        for member, kind, values in messages:
            replica = self.replicas[member]
            if replica.at != where:
                continue
            match kind:
                case "quorum" if values["term"] >= replica.term:
                    replica.offered = Quorum.from_dict(values)
                    replica.of = self.up[where].incarnation
                case "change" if values["epoch"] == replica.epoch:
                    replica.changing = True
                    replica.fenced = replica.fenced or values["urgent"]
                case "close":
                    replica.at = None

    def connect(self, replica: Replica, where: int) -> None:
        self.cut(replica)
        replica.at = where
        self.tell(where, self.up[where].hello(replica.id, replica.hello(), self.now))

    def cut(self, replica: Replica) -> None:
        where, replica.at, replica.offered = replica.at, None, None
        if where is not None:
            self.tell(where, self.up[where].lost(replica.id, self.now))

    def take_up(self, replica: Replica) -> None:
        q, replica.offered = replica.offered, None
        if q is None or not replica.parked:
            return
        replica.epoch, replica.key, replica.term = q.epoch, q.prefix, q.term
        replica.quorum, replica.term_of = tuple(p.id for p in q.members), replica.of
        replica.parked = replica.fenced = replica.changing = False
        replica.history.learn(History.from_dict(q.history))
        replica.history.take_up(Config(q.epoch, q.base, q.prefix, replica.quorum))

    def step(self, replica: Replica) -> None:
        """If all of its quorum can: they copy the newest state among them, and commit."""
        group = [self.replicas[each] for each in replica.quorum]
        if not self.could_commit(replica):
            return
        source = max(group, key=lambda r: (r.live, r.state_epoch, len(r.steps)))
        assert source.steps == self.newest or not any(
            r.alive and r.steps == self.newest for r in self.replicas.values()
        ), f"{replica.key} goes on from {source.steps[-1:]}, not from {self.newest[-1:]}"
        self.commits += 1
        self.newest = (*source.steps, f"{replica.key}@{self.commits}")
        for each in group:
            each.live, each.state_epoch, each.steps = True, each.epoch, self.newest
            each.history.activate(each.key)

    def could_commit(self, replica: Replica) -> bool:
        group = [self.replicas[each] for each in replica.quorum]
        return bool(group) and all(
            r.alive and not r.parked and r.key == replica.key and not r.fenced for r in group
        )

    def go(self, rng: random.Random) -> None:
        """What replicas do when nothing disturbs them: come to an authority, park, train."""
        where = rng.randrange(len(self.up))
        for replica in [r for r in self.replicas.values() if r.alive]:
            if replica.at is None or (replica.parked and rng.random() < 0.2):
                self.connect(replica, where)
        for act in (lambda r: self.park(r) if r.changing else None, self.take_up, self.step):
            for replica in [r for r in self.replicas.values() if r.alive]:
                if rng.random() < 0.9:
                    act(replica)

    def park(self, replica: Replica) -> None:
        if replica.parked:
            return
        replica.parked = True
        if replica.at is not None:
            said = {
                "epoch": replica.state_epoch, "step": len(replica.steps), "live": replica.live,
                "failed": True, "history": replica.history.to_dict(),
            }  # fmt: skip
            self.tell(replica.at, self.up[replica.at].park(replica.id, said, self.now))

    def kill(self, replica: Replica) -> None:
        replica.alive = False
        self.cut(replica)

    def certify(self, where: int, replica: Replica) -> None:
        if not replica.alive:
            said = {
                "name": replica.id, "code": -9, "member": replica.id, "epoch": replica.epoch
            }  # fmt: skip
            self.tell(where, self.up[where].dead(said, self.now))

    def restart(self, where: int) -> None:
        for replica in self.replicas.values():
            if replica.at == where:
                replica.at = replica.offered = None
        self.up[where] = self.authority(first=False)

    def tick(self) -> None:
        self.now += 1.1
        for where, each in enumerate(self.up):
            self.tell(where, each.tick(self.now))

    def in_force(self) -> set[str]:
        """Quorums all of whose members would commit now."""
        return {r.key for r in self.replicas.values() if r.alive and self.could_commit(r)}

    def event(self, rng: random.Random) -> None:
        alive = [r for r in self.replicas.values() if r.alive]
        where = rng.randrange(len(self.up))
        kinds = {"go": 6, "connect": 5, "cut": 3, "take": 6, "step": 6, "park": 5, "kill": 0.6,
                 "certify": 3, "restart": 0.4, "tick": 3, "join": 0.8}  # fmt: skip
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        if kind == "go":
            return self.go(rng)
        if kind == "tick":
            return self.tick()
        if kind == "restart":
            return self.restart(where)
        if kind == "join":
            return self.join() if len(alive) < 6 else None
        if kind == "certify":
            return self.certify(where, rng.choice(list(self.replicas.values())))
        if not alive:
            return self.join()
        replica = rng.choice(alive)
        match kind:
            case "connect":
                self.connect(replica, where)
            case "cut":
                self.cut(replica)
            case "take":
                self.take_up(replica)
            case "step":
                self.step(replica)
            case "park":
                self.park(replica)
            case "kill" if len(alive) > 1:
                self.kill(replica)
        return None


def run(seed: int, events: int = 200) -> Universe:
    rng = random.Random(seed)
    world = Universe(rng.randint(1, 5), rng.randint(2, 3))
    for _ in range(events):
        world.event(rng)
        forks = world.in_force()
        assert len(forks) <= 1, (seed, forks)
    return world


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_never_two_quorums_that_can_commit(seed: int) -> None:
    run(seed)


def test_the_property_is_not_empty() -> None:
    """Steps are committed in these histories, after successions, too."""
    worlds = [run(seed) for seed in range(30)]
    assert sum(world.commits for world in worlds) > 300
    makers = {(n, step.split("/")[1]) for n, w in enumerate(worlds) for step in w.newest}
    assert len(makers) > 40  # more than one authority a history
