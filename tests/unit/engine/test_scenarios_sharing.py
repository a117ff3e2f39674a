"""Reported from the field, and its kind: flapping, starvation, quotas and shares (the table of the
reports is in test_scenarios.py)."""

from __future__ import annotations

import dataclasses

import pytest

from controlplane.engine.plan import plan
from controlplane.engine.reasons import ReasonCode
from controlplane.engine.snapshot import DemandHistory, History, ReplicaShape, TrainerReport
from controlplane.engine.types import ReclaimPolicy
from tests.builders import (
    GPU,
    NOW,
    make_flight,
    make_key,
    make_node,
    make_nodes,
    make_pod,
    make_policy,
    make_shape,
)
from tests.scenario_kit import (
    AMD,
    NAMES,
    cluster,
    decision,
    drive,
    granted,
    queue,
    rules,
    running,
    sizes,
    suspended,
    waiting,
    waits_for,
    why,
)

# -- flapping --------------------------------------------------------------------------------


def test_kueue_3779_two_borrowers_settle():
    """a and b own 16 each, best-effort nothing; a holds 24 and best-effort 8, and all could use
    more. Nobody gives, for nobody misses anything of his own."""
    queues = [queue(name, n, cohort="c") for name, n in (("a", 16), ("b", 16), ("free", 0))]
    policies = rules(make_policy(), make_policy("one", max_replicas=1), queues=queues)
    snapshot = cluster(
        4,
        running("a", NAMES[:3], queue="a", priority=100),
        running("free", ["n03"], queue="free", priority=50),
        suspended("more", queue="a", policy="one", priority=100),
    )
    assert drive(snapshot, policies, 50)[0] == []


@pytest.mark.parametrize(
    ("held", "want"),
    [((3, 2), (3, 2)), ((2, 3), (2, 3)), ((4, 1), (3, 2)), ((1, 4), (2, 3)), ((1, 1), (3, 2))],
)
def test_volcano_3869_equals_share_once_and_stop(held, want):
    """Five places, min 1 each: whoever is above his share gives down to it, and then it is over."""
    one, two = running("one", NAMES[: held[0]]), running("two", NAMES[held[0] : sum(held)])
    found, after = drive(cluster(5, one, two), rules(), 50)
    assert tuple(granted(after).values()) == want
    assert len(found) == (0 if held in ((3, 2), (2, 3)) else 1 if held == (1, 1) else 2)


def test_volcano_3869_no_job_gives_for_one_that_gains_nothing():
    """b is as fast with one replica as with two, as measured."""
    curve = {"throughput": {1: 100.0, 2: 100.0, 3: 100.0}, "deviation": {1: 0.0, 2: 0.0, 3: 0.0}}
    report = TrainerReport(productive=1, reported_at=NOW, **curve)
    snapshot = cluster(
        4, running("a", NAMES[:3]), running("b", ["n03"]), reports={make_key("b"): report}
    )
    assert drive(snapshot, rules(), 8)[0] == []


def test_volcano_3869_no_job_gives_for_what_becomes_a_spare():
    snapshot = cluster(4, running("a", NAMES[:3]), running("b", ["n03"]))
    assert drive(snapshot, rules(spares={GPU: 32}), 8)[0] == []


@pytest.mark.parametrize("state", ["pending", "applied"])
def test_ray_50783_a_gang_whose_nodes_boot_is_held(state):
    """Far beyond the fault time-out, with a command under way or none, as long as none runs."""
    new, pods = running("new", [None, None])
    history = {new.key: History(short_since=NOW - 3600)}
    for flights in ((), (make_flight(new, 2, from_replicas=0, state=state),)):
        snapshot = cluster(0, (new, pods), history=history, in_flight=flights)
        assert sizes(plan(snapshot, rules(make_policy(min_replicas=2)), NOW)) == []


def test_autoscaler_7956_a_node_without_its_device_plugin_boots():
    """It is no room yet, it isn't nothing either, and a job that waits for it stays granted."""
    booting = make_node("n01", 0, expects={GPU: 8})
    job = running("a", ["n00", None])
    made = plan(cluster([make_node("n00"), booting], job), rules(), NOW)
    assert sizes(made) == []
    assert made.accounting.totals[GPU] == {"used": 8, "booting": 8}
    assert why(made, "a") is ReasonCode.REPAIRING


# -- starvation, inversion, gangs ------------------------------------------------------------


def test_kai_2075_a_pod_that_is_never_bound_gives_its_place_to_others():
    """It fits for 60 s; then the job grows into its place, and gives it back for the next try."""
    snapshot = cluster(2, running("a", ["n00"]), pods=waiting("web"))
    policies = rules(bind_timeout_s=60.0)
    codes, history = {}, {}
    for at in range(0, 300, 20):
        now = NOW + at
        snapshot = dataclasses.replace(snapshot, taken_at=now, demand_history=history)
        made = plan(snapshot, policies, now)
        codes[at] = (made.pending[0].reason.code, sizes(made))
        history = {p.workload_or_pod: p.history for p in made.pending}
    fits, backs_off = (ReasonCode.FITS, []), (ReasonCode.BIND_BACK_OFF, [("a", 1, 2)])
    assert codes == {
        at: fits if at < 60 or 120 <= at < 180 else backs_off for at in range(0, 300, 20)
    }


def test_kai_2075_a_back_off_wakes_the_loop_and_says_how_often():
    history = {"Deployment/ml/web": DemandHistory(fits_since=NOW - 60)}
    made = plan(cluster(1, pods=waiting("web"), demand_history=history), rules(), NOW)
    assert made.pending[0].history == DemandHistory(None, 1, NOW)
    assert made.next_wake == NOW + 60
    assert made.pending[0].reason.numbers["refusals"] == 1


def test_volcano_3373_gangs_start_one_after_the_other_and_whole():
    policies = rules(make_policy(min_replicas=4, max_replicas=4))
    snapshot = cluster(4, suspended("one", 4), suspended("two", 4))
    found, after = drive(snapshot, policies, 8)
    assert found == [[("one", 4, 4)]]
    ended = [dataclasses.replace(w, finished=w.key.name == "one") for w in after.workloads]
    after = dataclasses.replace(after, workloads=tuple(ended), pods=(), taken_at=NOW)
    assert drive(after, policies, 8)[0] == [[("two", 4, 4)]]


def test_volcano_1425_each_type_of_accelerator_is_served_by_itself():
    """nvidia is exhausted by a head of high priority; the amd jobs start and grow."""
    amounts = {AMD: 4, "cpu": 64_000}
    amd = [make_node(f"a{i}", allocatable=amounts, capacity=amounts) for i in range(3)]
    shape = ReplicaShape(1, {AMD: 4})
    old = running("old", ["a0"], shape=shape)
    snapshot = cluster(
        [make_node("n00"), *amd], running("x", ["n00"]), old, suspended("zed", shape=shape),
        pods=waiting("web", 3),
    )  # fmt: skip
    made = plan(snapshot, rules(), NOW)
    assert sizes(made) == [("old", 1, 2), ("zed", 1, 1)]
    assert waits_for(made, "web") is ReasonCode.NO_CAPACITY


@pytest.mark.parametrize(
    ("protect", "nominal", "of", "want", "said"),
    [
        (False, 32, "other", [("low", 4, 3)], None),
        (True, 32, "other", [], ReasonCode.NOMINAL_KEPT),
        (True, 24, "other", [("low", 4, 3)], None),
        (True, 32, "q", [("low", 4, 3)], None),
    ],
)
def test_kai_2064_policy_decides_whether_a_nominal_quota_protects(protect, nominal, of, want, said):
    """From other queues, and as far as it goes; and it says so."""
    queues = [queue("q", nominal, cohort="c", protect_nominal=protect),
              queue("other", 64, cohort="c")]  # fmt: skip
    low = running("low", NAMES[:4], queue="q")
    made = plan(
        cluster(4, low, suspended("high", queue=of, priority=500)), rules(queues=queues), NOW
    )
    assert sizes(made) == want
    found = [r.reason.code for p in made.pending for r in p.rejected]
    assert found == ([said] if said else [])


def test_kai_2064_one_gang_does_not_reach_into_a_nominal_quota():
    """The queue borrows 16 of its 32: two of the three that the gang asks for."""
    queues = [queue("q", 16, cohort="c", protect_nominal=True), queue("other", 64, cohort="c")]
    policies = rules(make_policy(), make_policy("three", min_replicas=3), queues=queues)
    gang = suspended("gang", 3, policy="three", priority=500)
    made = plan(cluster(4, running("low", NAMES[:4], queue="q"), gang), policies, NOW)
    assert sizes(made) == []


def test_kai_2064_a_class_that_never_takes_says_so():
    policies = rules(preemption={"never": ReclaimPolicy.NEVER})
    snapshot = cluster(2, running("low", NAMES[:2]), pods=waiting("web", priority_class="never"))
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == []
    assert [(r.candidate, r.reason.code) for r in made.pending[0].rejected] == [
        ("Job/ml/low", ReasonCode.MAY_NOT_PREEMPT)
    ]


def test_kai_2064_the_only_job_that_helps_is_found_behind_thirty_that_do_not():
    nodes = make_nodes(30)
    nodes = [*nodes[:-1], make_node("n29", labels={"zone": "b"})]
    jobs = [
        running(f"j{i:02}", [name, name], shape=make_shape(4)) for i, name in enumerate(NAMES[:30])
    ]
    pods = waiting("web", gpus=4, node_selector={"zone": "b"})
    assert sizes(plan(cluster(nodes, *jobs, pods=pods), rules(), NOW)) == [("j29", 2, 1)]


# -- quotas and shares -----------------------------------------------------------------------


def test_what_is_lent_is_called_back_and_stays_back():
    """b borrows all; the owner starts with what it calls back, and b doesn't take it again."""
    queues = [queue("b", 0, cohort="c"), queue("own", 16, cohort="c")]
    policies = rules(make_policy(), make_policy("two", min_replicas=2, max_replicas=2),
                     queues=queues)  # fmt: skip
    snapshot = cluster(
        4, running("b", NAMES[:2], queue="b"), suspended("own", 2, queue="own", policy="two"),
        pods=[make_pod("x", node="n02"), make_pod("y", node="n03")],
    )  # fmt: skip
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == []  # b can't go below its minimum of 1: nothing is taken in vain
    policies = rules(make_policy(), make_policy("two", min_replicas=1, max_replicas=2),
                     queues=queues)  # fmt: skip
    found, after = drive(snapshot, policies, 10)
    assert found == [[("b", 2, 1)], [("own", 2, 1)]]
    assert granted(after) == {"b": 1, "own": 1}


def test_nothing_is_called_back_for_a_job_that_has_no_node():
    queues = [queue("b", 0, cohort="c"), queue("own", 32, cohort="c")]
    nowhere = suspended("own", queue="own", shape=make_shape(node_selector={"zone": "none"}))
    made = plan(cluster(4, running("b", NAMES[:4], queue="b"), nowhere), rules(queues=queues), NOW)
    assert sizes(made) == []
    assert waits_for(made, "own") is ReasonCode.NO_CAPACITY


@pytest.mark.parametrize(
    ("weights", "want"),
    [((1.0, 1.0), (4, 4)), ((3.0, 1.0), (6, 2)), ((1.0, 3.0), (2, 6))],
)
@pytest.mark.parametrize("of", ["jobs", "queues"])
def test_weights_share_eight_places(of, weights, want):
    """Of two jobs, or of their queues; from what is free, and from what the other has too much."""
    by_job = of == "jobs"
    queues = [queue(n, weight=1.0 if by_job else w) for n, w in zip("xy", weights, strict=True)]
    for held in ((1, 1), (7, 1), (1, 7)):
        jobs = [
            running(name, nodes, queue=q, weight=w if by_job else 1.0)
            for name, q, w, nodes in zip(
                "ab", "xx" if by_job else "xy", weights,
                (NAMES[: held[0]], NAMES[held[0] : sum(held)]), strict=True,
            )
        ]  # fmt: skip
        found, after = drive(cluster(8, *jobs), rules(queues=queues), 20)
        assert tuple(granted(after).values()) == want, held
        assert len(found) <= 2


def test_a_start_gets_its_minimum_from_equals_above_their_share():
    _, after = drive(cluster(4, running("a", NAMES[:4]), suspended("b")), rules(), 12)
    assert granted(after) == {"a": 2, "b": 2}


def test_a_job_gives_its_equals_all_that_is_above_its_share_in_one_resize():
    snapshot = cluster(8, running("a", NAMES[:7]), running("b", ["n07"]))
    assert drive(snapshot, rules(), 8)[0] == [[("a", 7, 4)], [("b", 1, 4)]]


def test_a_running_job_below_its_minimum_takes_only_what_it_misses():
    policies = rules(make_policy(), make_policy("three", min_replicas=3))
    snapshot = cluster(8, running("a", NAMES[:7]), running("b", ["n07"], policy="three"))
    assert sizes(plan(snapshot, policies, NOW)) == [("a", 7, 5)]


def test_a_start_counts_among_its_equals_at_once():
    """They grow to their shares beside it, not into what it asks back in the next cycle."""
    snapshot = cluster(6, running("a", NAMES[:2]), suspended("b"))
    found, after = drive(snapshot, rules(), 8)
    assert granted(after) == {"a": 3, "b": 3}
    assert not any(later < before for cycle in found for name, before, later in cycle)


@pytest.mark.parametrize("timeout", [0.0, 20.0])
def test_what_an_equal_gives_is_kept_for_the_taker_while_it_terminates(timeout):
    """Its claim lasts, and its stabilization window too: the giver doesn't grow back."""
    policies = rules(make_policy(scaling_timeout=timeout, max_replicas=4))
    snapshot = cluster(4, running("a", NAMES[:3]), running("b", ["n03"]))
    assert drive(snapshot, policies, 30)[0] == [[("a", 3, 2)], [("b", 1, 2)]]


def test_a_taker_waits_for_what_is_given_while_the_shrink_is_under_way():
    a, pods = running("a", NAMES[:3])
    flight = make_flight(a, 2, state="applying")
    history = {make_key("b"): History(growth_wanted_since=NOW - 30)}
    snapshot = cluster(4, (a, pods), running("b", ["n03"]), in_flight=[flight], history=history)
    made = plan(snapshot, rules(make_policy(scaling_timeout=20.0)), NOW)
    assert why(made, "b") is ReasonCode.WAITS_FOR_RELEASE
    assert decision(made, "b").growth_wanted_since == NOW - 30
