"""The authority's state machine: each test is a history of what members say, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from trainer_runtime.members import Timing
from trainer_runtime.membership import Membership, Message
from trainer_runtime.protocol import Phase, ProtocolError
from trainer_runtime.succession import Config, History, Succession


@dataclass
class World:
    """A membership with a clock, and the last message of each kind to each member."""

    least: int = 1
    store: int | None = 4000
    now: float = 100.0
    told: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    log: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.it = Membership("job", "inc", self.least, Timing(5.0, 60.0, 3.0), lambda: self.store)

    def keep(self, messages: list[Message]) -> World:
        for member, kind, values in messages:
            self.told[member, kind] = values
            self.log.append((member, kind))
        return self

    def hello(self, member: str, **said: Any) -> World:
        usual = {"name": member.partition("#")[0], "epoch": 0, "state_epoch": 0, "step": 0,
                 "live": False, "parked": True}  # fmt: skip
        return self.keep(self.it.hello(member, usual | said, self.now))

    def park(self, member: str, step: int, *, epoch: int | None = None, **said: Any) -> World:
        epoch = self.it.epoch if epoch is None else epoch
        said = {"epoch": epoch, "step": step, "live": True} | said
        return self.keep(self.it.park(member, said, self.now))

    def lost(self, member: str) -> World:
        return self.keep(self.it.lost(member, self.now))

    def leave(self, member: str) -> World:
        return self.keep(self.it.leave(member, self.now))

    def beat(self, member: str, counter: int, phase: Phase = Phase.COMPUTE) -> World:
        said = {"n": 1, "counter": counter, "phase": phase, "step": 0}
        return self.keep(self.it.beat(member, said, self.now))

    def after(self, seconds: float) -> World:
        self.now += seconds
        return self.keep(self.it.tick(self.now))

    def quorum(self, member: str) -> tuple[int, list[str], str, list[str]]:
        """Epoch, members, source and who copies, as this member was told last."""
        q = self.told[member, "quorum"]
        copies = [peer["id"] for peer in q["members"] if peer["copies"]]
        return q["epoch"], [peer["id"] for peer in q["members"]], q["source"], copies


def train(*members: str, least: int = 1, step: int = 10) -> World:
    """These train together in the epoch after their first ones, all at the same step."""
    world = World(least)
    for member in members:
        world.hello(member)
    if len(members) > 1 and least == 1:
        world.park(members[0], step)
    return world


def test_first_replica_starts_at_once_and_knows_nothing_is_there() -> None:
    world = World().hello("a#1")
    assert world.quorum("a#1") == (1, ["a#1"], "a#1", [])
    assert world.told["a#1", "quorum"]["origin"] == "start"
    assert world.told["a#1", "quorum"]["last_step"] == 0
    assert world.told["a#1", "quorum"]["prefix"] == "job/inc/1"


def test_waits_for_the_minimum_and_says_so_once() -> None:
    world = World(least=2).hello("a#1")
    assert world.told["a#1", "waiting"] == {
        "have": 1, "need": 2, "reporter": True, "epoch": 0, "members": ["a"]
    }  # fmt: skip
    count = world.log.count(("a#1", "waiting"))
    world.after(1.0)
    assert world.log.count(("a#1", "waiting")) == count
    world.hello("b#1")
    assert world.quorum("b#1") == (1, ["a#1", "b#1"], "a#1", ["b#1"])


def test_waits_for_the_store() -> None:
    world = World(store=None).hello("a#1")
    assert ("a#1", "quorum") not in world.told
    world.store = 4000
    assert world.after(0.1).quorum("a#1")[0] == 1


def test_join_is_planned_and_coalesces() -> None:
    world = train("a#1").hello("b#1").hello("c#1")
    assert world.told["a#1", "change"] == {
        "epoch": 1, "urgent": False, "cause": "joined", "age": 0.0, "lost": []
    }  # fmt: skip
    assert world.it.epoch == 1
    world.park("a#1", 7)
    assert world.quorum("a#1") == (2, ["a#1", "b#1", "c#1"], "a#1", ["b#1", "c#1"])
    assert world.told["a#1", "quorum"]["joined"] == ("b", "c")
    assert world.told["a#1", "quorum"]["origin"] == "peer"


def test_loss_is_urgent_and_laggards_copy_from_the_highest() -> None:
    world = train("a#1", "b#1", "c#1")
    for member in ("a#1", "b#1", "c#1"):
        world.beat(member, 1)
    world.lost("c#1")
    assert world.told["a#1", "change"]["urgent"] is True
    # b committed step 11, a did not.
    world.park("a#1", 10, failed=True).park("b#1", 11, failed=True)
    assert world.quorum("a#1") == (3, ["a#1", "b#1"], "b#1", ["a#1"])
    assert world.told["a#1", "quorum"]["lost"] == ("c",)
    assert world.told["a#1", "quorum"]["cause"] == "replica_lost"


def test_loss_is_the_cause_even_if_a_survivor_noticed_first() -> None:
    world = train("a#1", "b#1", "c#1")
    world.park("a#1", 10, failed=True).lost("c#1").park("b#1", 10, failed=True)
    assert world.told["a#1", "quorum"]["cause"] == "replica_lost"


def test_loss_during_set_up_is_followed_by_another_epoch() -> None:
    world = train("a#1", "b#1", "c#1").lost("b#1")
    world.park("a#1", 10, failed=True).park("c#1", 10, failed=True)
    assert world.it.epoch == 3
    world.lost("c#1").park("a#1", 10, epoch=2, failed=True)
    assert world.quorum("a#1") == (4, ["a#1"], "a#1", [])


def test_same_step_of_an_older_epoch_is_not_the_same_state() -> None:
    world = train("a#1", "b#1").lost("b#1").park("a#1", 10, failed=True)
    assert world.it.epoch == 3
    world.hello("b#1", epoch=2, state_epoch=2, step=10, live=True).park("a#1", 10, epoch=3)
    assert world.quorum("b#1") == (4, ["a#1", "b#1"], "a#1", ["b#1"])


def test_who_trains_in_an_old_epoch_is_fenced_out() -> None:
    world = train("a#1", "b#1").lost("b#1").park("a#1", 10, failed=True)
    world.hello("b#1", epoch=2, state_epoch=2, step=12, live=True, parked=False,
                quorum=["a#1", "b#1"])  # fmt: skip
    change = world.told["b#1", "change"]
    assert (change["epoch"], change["urgent"], change["cause"]) == (2, True, "fenced")
    # Steps of a dead epoch count for nothing, even if they are more.
    world.park("b#1", 12, epoch=2).park("a#1", 11, epoch=3)
    assert world.quorum("a#1") == (4, ["a#1", "b#1"], "a#1", ["b#1"])


def test_leaving_is_planned_and_released_without_a_checkpoint() -> None:
    world = train("a#1", "b#1").leave("b#1")
    assert world.told["a#1", "change"]["urgent"] is False
    world.park("b#1", 11).park("a#1", 11)
    assert world.told["b#1", "released"] == {"checkpoint": False}
    assert world.quorum("a#1")[:2] == (3, ["a#1"])
    assert world.told["a#1", "quorum"]["left"] == ("b",)


def test_last_to_leave_writes_one_checkpoint() -> None:
    world = train("a#1", "b#1").leave("a#1").leave("b#1").park("a#1", 11).park("b#1", 11)
    writers = [m for m in ("a#1", "b#1") if world.told[m, "released"]["checkpoint"]]
    assert writers == ["a#1"]


def test_leaving_with_only_fresh_replicas_left_writes_a_checkpoint() -> None:
    world = train("a#1").hello("b#1").leave("a#1").park("a#1", 11)
    assert world.told["a#1", "released"] == {"checkpoint": True}
    assert world.told["b#1", "quorum"]["origin"] == "start"
    assert world.told["b#1", "quorum"]["last_step"] == 11


def test_leaving_from_a_wait_below_the_minimum() -> None:
    world = train("a#1", "b#1", least=2).lost("b#1").park("a#1", 5, failed=True)
    assert world.told["a#1", "waiting"]["need"] == 2
    world.leave("a#1")
    assert world.told["a#1", "released"] == {"checkpoint": True}


def test_newest_checkpoint_wins_a_start() -> None:
    world = World(least=2).hello("a#1", checkpoint_step=-1).hello("b#1", checkpoint_step=40)
    assert world.quorum("a#1") == (1, ["a#1", "b#1"], "b#1", ["a#1"])


@pytest.mark.parametrize(
    ("phase", "seconds", "want"),
    [
        (Phase.COMPUTE, 59.0, ["a#1"]),
        (Phase.COMPUTE, 61.0, []),
        (Phase.REDUCE, 61.0, ["a#1"]),
        (Phase.PAUSED, 500.0, ["a#1"]),
    ],
)
def test_progress_counts_only_while_computing(
    phase: Phase, seconds: float, want: list[str]
) -> None:
    world = train("a#1").beat("a#1", 3, phase)
    for _ in range(int(seconds)):
        world.now += 1.0
        world.beat("a#1", 3, phase)
    world.after(0.5)
    assert list(world.it.members) == want


def test_silence_expires_and_says_since_when() -> None:
    world = train("a#1", "b#1").beat("b#1", 1)
    for _ in range(6):
        world.now += 1.0
        world.beat("a#1", 2)
    world.after(0.0)
    assert list(world.it.members) == ["a#1"]
    assert ("b#1", "close") in world.told
    change = world.told["a#1", "change"]
    assert (change["cause"], change["age"], change["lost"]) == ("replica_hung", 6.0, ["b"])


def test_reduction_that_nobody_gets_out_of_is_broken_up() -> None:
    world = train("a#1", "b#1")
    for _ in range(62):
        world.now += 1.0
        world.beat("a#1", 1, Phase.REDUCE).beat("b#1", 1, Phase.REDUCE)
    world.after(0.0)
    assert world.told["a#1", "change"]["cause"] == "reduction_stuck"
    assert list(world.it.members) == ["a#1", "b#1"]


def back(world: World, member: str, **said: Any) -> World:
    usual = {"epoch": 6, "state_epoch": 6, "step": 50, "live": True, "parked": False,
             "quorum": ["a#1", "b#1"]}  # fmt: skip
    return world.hello(member, **usual | said)


def test_restarted_authority_goes_on_above_the_epoch_it_is_told() -> None:
    world = back(World(), "b#1")
    assert world.it.missing == {"a#1": 103.0}
    back(world, "a#1")
    assert world.told["a#1", "change"]["urgent"] is False
    assert world.told["b#1", "change"]["urgent"] is False
    world.park("a#1", 51).park("b#1", 51)
    # Rank order is the old one, whoever came back first.
    assert world.quorum("b#1") == (7, ["a#1", "b#1"], "a#1", [])
    assert world.told["a#1", "quorum"]["joined"] == ()


def test_restarted_authority_does_not_start_others_before_the_old_are_back() -> None:
    world = back(World(), "b#1").hello("n#1")
    assert ("n#1", "quorum") not in world.told
    world.after(3.1)
    assert world.told["b#1", "change"]["urgent"] is True
    world.park("b#1", 50, epoch=6, failed=True)
    assert world.quorum("n#1") == (7, ["b#1", "n#1"], "b#1", ["n#1"])
    assert world.told["n#1", "quorum"]["lost"] == ("a",)


def test_finished_job_is_not_begun_anew_by_a_replica_that_waited() -> None:
    world = train("a#1").hello("b#1")
    world.keep(world.it.bye("a#1", {"reason": "finished", "step": 100}, world.now))
    assert ("b#1", "finished") in world.told
    assert ("b#1", "quorum") not in world.told
    world.hello("c#1")
    assert ("c#1", "finished") in world.told


def test_epochs_only_rise() -> None:
    world = train("a#1", "b#1", "c#1")
    seen = [values["epoch"] for (_, kind), values in world.told.items() if kind == "quorum"]
    world.lost("a#1").park("b#1", 3).park("c#1", 3).hello("d#1").park("b#1", 4).park("c#1", 4)
    seen.append(world.it.epoch)
    assert seen == sorted(seen)
    assert world.it.epoch == 4


# ---- what is forgotten, lanes, agents -------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "seconds", "want"),
    [("left", 59.0, False), ("left", 61.0, True), ("finished", 61.0, True),
     ("lost", 61.0, False), ("lost", 3601.0, True)],
)  # fmt: skip
def test_job_without_members_is_forgotten(end: str, seconds: float, want: bool) -> None:
    world = train("a#1")
    match end:
        case "left":
            world.leave("a#1").park("a#1", 11)
        case "finished":
            world.keep(world.it.bye("a#1", {"reason": "finished", "step": 100}, world.now))
        case "lost":
            world.lost("a#1")
    world.after(0.0)
    assert not world.it.forgettable(world.now)
    world.after(seconds)
    assert world.it.forgettable(world.now) is want


def test_minimum_is_the_most_that_present_members_want() -> None:
    world = World(least=1).hello("a#1", min_replicas=1).hello("b#1", min_replicas=3)
    assert world.it.min_replicas == 3
    world.park("a#1", 5)
    assert world.told["a#1", "waiting"]["need"] == 3
    world.lost("b#1")
    assert world.it.min_replicas == 1
    assert world.quorum("a#1")[:2] == (2, ["a#1"])


def test_nothing_grows_while_joiners_come_and_go() -> None:
    world = train("a#1", "b#1", least=2).lost("b#1").park("a#1", 5, failed=True)
    for number in range(200):
        world.hello(f"n{number}#1", min_replicas=9, leaving=number % 2 == 0).lost(f"n{number}#1")
    it = world.it
    assert [len(each) for each in (it.members, it._lost, it._left, it._told, it._arriving)] == [
        1, 1, 0, 1, 0
    ]  # fmt: skip


def lanes(world: World, member: str, count: int, **said: Any) -> World:
    for lane in range(count):
        world.hello(member, lane=lane, lanes=count, **said)
    return world


def test_replica_of_lanes_joins_when_all_are_here() -> None:
    world = World().hello("a#1", lane=1, lanes=2)
    assert world.told["a#1", "welcome"]["lane"] == 1
    assert ("a#1", "quorum") not in world.told
    world.hello("a#1", lane=0, lanes=2)
    assert world.quorum("a#1") == (1, ["a#1"], "a#1", [])


def test_replica_of_lanes_has_parked_when_all_have() -> None:
    world = lanes(World(), "a#1", 2).hello("b#1")
    world.park("a#1", 7, lane=0)
    assert ("b#1", "quorum") not in world.told
    world.park("a#1", 0, lane=1)  # only lane 0's state counts
    assert world.quorum("b#1") == (2, ["a#1", "b#1"], "a#1", ["b#1"])
    assert world.told["b#1", "quorum"]["members"][0]["step"] == 7


def test_replica_of_lanes_is_lost_with_one() -> None:
    world = lanes(World(), "a#1", 3).lost("a#1")
    assert world.log[-1] == ("a#1", "close")
    assert world.it.members == {}
    world.hello("b#1", lane=0, lanes=2).lost("b#1")  # before the other one came
    assert world.log[-1] == ("b#1", "close")
    assert world.it._arriving == {}


def test_hang_of_one_lane_is_one_of_the_replica() -> None:
    world = lanes(World(), "a#1", 2)
    for number in range(62):
        world.now += 1.0
        for lane in (0, 1):
            said = {"n": 1, "counter": number if lane == 0 else 0, "phase": Phase.COMPUTE,
                    "lane": lane}  # fmt: skip
            world.keep(world.it.beat("a#1", said, world.now))
    assert world.told["a#1", "ack"]["lane"] == 1
    world.after(0.0)
    assert world.it.members == {}
    assert ("a#1", "close") in world.told


def test_lanes_of_different_epochs_are_fenced_each() -> None:
    world = lanes(World(), "a#1", 2).lost("a#1")
    world.hello("a#1", lane=0, lanes=2, epoch=1, parked=True)
    world.hello("a#1", lane=1, lanes=2, epoch=1, parked=False, quorum=["a#1"])
    change = world.told["a#1", "change"]
    assert (change["epoch"], change["cause"], change["lane"]) == (1, "fenced", 1)


@pytest.mark.parametrize("said", [{"lane": 0, "lanes": 2}, {"lane": 1, "lanes": 3}])
def test_lanes_that_do_not_fit_are_refused(said: dict[str, int]) -> None:
    world = World().hello("a#1", lane=0, lanes=2)
    with pytest.raises(ProtocolError, match=r"lane: \d of \d of a#1 doesn't fit"):
        world.hello("a#1", **said)


def test_death_that_an_agent_saw_is_not_waited_out() -> None:
    world = back(World(), "b#1")
    assert list(world.it.missing) == ["a#1"]
    world.keep(world.it.dead({"name": "a", "code": -9, "epoch": -1}, world.now))
    assert world.it.missing == {}
    assert world.told["b#1", "change"]["urgent"] is True
    world.park("b#1", 50, epoch=6, failed=True)
    assert world.quorum("b#1")[:2] == (7, ["b#1"])


def test_death_of_a_connected_one_is_its_end() -> None:
    world = train("a#1", "b#1")
    world.keep(world.it.dead({"name": "b", "code": -9, "member": "b#0", "epoch": 1}, world.now))
    assert list(world.it.members) == ["a#1", "b#1"]  # that was an earlier start of b
    world.keep(world.it.dead({"name": "b", "code": -9, "member": "b#1", "epoch": 2}, world.now))
    assert list(world.it.members) == ["a#1"]
    assert world.told["a#1", "change"]["lost"] == ["b"]


def test_drained_by_name() -> None:
    world = train("a#1", "b#1")
    world.keep(world.it.drain(["b", "stranger"], world.now)).park("a#1", 11).park("b#1", 11)
    assert world.told["b#1", "released"] == {"checkpoint": False}
    assert world.quorum("a#1")[:2] == (3, ["a#1"])


# ---- one of several candidates --------------------------------------------------------------


def candidate(*, founds: bool, of: str = "inc") -> World:
    world = World()
    world.it = Membership(
        "job", of, 1, Timing(5.0, 60.0, 3.0), lambda: 4000, Succession(founds=founds)
    )
    return world


def told(world: World, member: str, *, trained: bool = True) -> dict[str, Any]:
    """What this replica says of itself after it took up what it was told last, and trained."""
    q = world.told[member, "quorum"]
    history = History.from_dict(q["history"])
    ids = tuple(peer["id"] for peer in q["members"])
    history.take_up(Config(q["epoch"], q["base"], q["prefix"], ids))
    if trained:
        history.activate(q["prefix"])
    return {"epoch": q["epoch"], "state_epoch": q["epoch"], "key": q["prefix"], "live": True,
            "quorum": list(ids), "parked": False, "term": q["term"],
            "term_of": world.it.incarnation, "history": history.to_dict()}  # fmt: skip


def three() -> World:
    """a, b and c train at the founder."""
    return candidate(founds=True).hello("a#1").hello("b#1").hello("c#1").park("a#1", 1, failed=True)


def test_candidate_begins_nothing_it_may_not_found() -> None:
    world = candidate(founds=False).hello("a#1")
    assert world.told["a#1", "waiting"]["minority"] is True
    assert ("a#1", "quorum") not in world.told


def test_majority_goes_on_at_another_candidate_with_a_higher_term() -> None:
    first, second = three(), candidate(founds=False, of="other")
    second.hello("b#1", **told(first, "b#1"))
    said = {"n": 1, "counter": 1, "phase": Phase.COMPUTE}
    assert second.it.beat("b#1", said, second.now) == []  # one of three: no lease
    second.hello("c#1", **told(first, "c#1"))
    assert second.beat("b#1", 2).told["b#1", "ack"]["n"] == 1
    second.after(3.1).park("b#1", 2, failed=True).park("c#1", 2, failed=True)
    assert second.quorum("b#1")[:2] == (3, ["b#1", "c#1"])
    assert second.told["b#1", "quorum"]["term"] == 2
    # a, left behind at the first, can't go on alone.
    first.lost("b#1").lost("c#1").park("a#1", 2, failed=True)
    assert first.told["a#1", "waiting"]["absent"] == ["b", "c"]
    assert first.told["a#1", "waiting"]["need"] == 2


def test_death_counts_only_with_its_last_word() -> None:
    world = three().lost("b#1").lost("c#1")
    world.park("a#1", 2, failed=True, history=told(world, "a#1")["history"])
    assert world.told["a#1", "waiting"]["have"] == 1
    world.keep(world.it.dead({"name": "b", "code": -9, "epoch": -1}, world.now))
    assert world.it.epoch == 2
    world.keep(world.it.dead({"name": "b", "code": -9, "member": "b#1", "epoch": 2}, world.now))
    assert world.quorum("a#1")[:2] == (3, ["a#1"])  # a half of the rest, with its first


def test_leaver_counts_once_it_has_said_that_it_went() -> None:
    world = candidate(founds=True).hello("a#1").hello("b#1").park("a#1", 1).leave("a#1")
    history = told(world, "b#1")["history"]
    world.park("a#1", 2, history=history).park("b#1", 2, history=history)
    assert world.told["a#1", "released"] == {"checkpoint": False}
    assert world.told["b#1", "waiting"]["absent"] == ["a"]
    world.keep(world.it.bye("a#1", {"reason": "left", "epoch": 2}, world.now))
    assert world.quorum("b#1")[:2] == (3, ["b#1"])


def test_who_joined_knows_what_its_quorum_followed() -> None:
    """d took up a quorum that came to nothing: its word alone doesn't make that the newest."""
    first = three().hello("d#1")
    for member in ("a#1", "b#1", "c#1"):
        first.park(member, 2)
    second = candidate(founds=False, of="other").hello("d#1", **told(first, "d#1", trained=False))
    keys = {each.epoch for each in second.it.succession.history.open}  # type: ignore[union-attr]
    assert keys == {1, 2, 3}
