"""What was reported from the field about decisions, each with the rest of its kind.

Held here unless another place is named; a case may be held in several.

| report | held in |
|---|---|
| kueue 11977 grows past a full quota | here, test_quota |
| kueue 13117 finished replicas | test_accounting, test_hard_cases |
| kueue 9329 equal totals, other groups | here |
| kueue 6384 freed capacity wakes the queue | here |
| kueue 6969 scale-up preempts | here, test_hard_cases (inelastic) |
| kueue 3151 its own size after an eviction | here |
| ray 48909 two requests of +1 | test_plan |
| kueue 840 the newest borrower | here, test_quota |
| volcano 2627 min 1 of 4 | here, test_plan |
| kueue 1309 one node whole | here, test_plan |
| kuberay 208 the named first | here |
| mpi-operator 410 the draining node first | here |
| kueue 3779 two borrowers settle | here, test_quota |
| volcano 3869 equals don't reclaim | here, test_plan |
| ray 50783 a gang that forms is held | here, test_hard_cases |
| autoscaler 7956 booting | here |
| kueue 9715 a blocked head | test_plan, test_hard_cases |
| KAI 2075 never bound | here, test_damping |
| volcano 3373 two gangs | here, test_plan |
| volcano 1425 types of accelerators | here, test_plan |
| KAI 2064 within its nominal quota | here, test_quota |
| kueue 6868 taints | test_plan |
| kueue 9616 a taint after the decision | here |
| kueue 14570 the same accelerators twice | here, test_plan, test_quota |
| volcano 5911 free by device | here |
| KAI 1880, 1930, 422 effective requests, claims, MIG | tests/unit/cluster |
| kueue 14811 a reservation that stays | here |
| dlrover 1175 one stays pending | test_hard_cases |
| trainer 1593 removed pods that failed | here |
| skypilot 9840 never above the total | test_accounting |
"""

from __future__ import annotations

import dataclasses

import pytest

from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.plan import Plan, plan
from controlplane.engine.policy import ElasticityPolicy, PolicySet
from controlplane.engine.queues import CohortPolicy, QueuePolicy, Quota
from controlplane.engine.reasons import ReasonCode, because
from controlplane.engine.snapshot import (
    ClusterSnapshot,
    DemandHistory,
    Departure,
    History,
    Move,
    NodeHistory,
    ReplicaShape,
    TrainerReport,
)
from controlplane.engine.types import PodPhase, ReclaimPolicy, Taint, VictimChoice
from controlplane.engine.validation import still_valid
from tests.builders import (
    GPU,
    NOW,
    make_flight,
    make_key,
    make_node,
    make_nodes,
    make_pod,
    make_policy,
    make_replicas,
    make_shape,
    make_snapshot,
    make_workload,
)
from tests.random_clusters import CYCLE_S, carried_out

NAMES = [f"n{i:02}" for i in range(32)]
AMD = "amd.com/gpu"
RACK = "rack"


def running(name: str, nodes, **fields):
    """A job with one replica on each node (None: pending)."""
    workload = make_workload(name, granted=len(nodes), **fields)
    return workload, make_replicas(workload, nodes)


def suspended(name: str, granted: int = 1, **fields):
    return make_workload(name, granted=granted, suspended=True, **fields), []


def waiting(name: str, n: int = 1, gpus: int = 8, priority: int = 1000, **fields):
    key = make_key(name, kind="Deployment")
    return [
        make_pod(f"{name}-{i}", gpus=gpus, priority=priority, workload=key, **fields)
        for i in range(n)
    ]


def cluster(nodes, *jobs, pods=(), **fields) -> ClusterSnapshot:
    more = {k: fields.pop(k) for k in ("node_history", "demand_history") if k in fields}
    snapshot = make_snapshot(
        make_nodes(nodes) if isinstance(nodes, int) else nodes,
        [*pods, *(pod for _, found in jobs for pod in found)],
        [workload for workload, _ in jobs],
        **fields,
    )
    return dataclasses.replace(snapshot, **more)


def rules(*policies: ElasticityPolicy, queues=(), preemption=None, **fields) -> PolicySet:
    """`fields` are those of the cluster's policy. Queues that name a cohort share one."""
    return PolicySet(
        {policy.name: policy for policy in policies or (make_policy(),)},
        {queue.name: queue for queue in queues},
        {queue.cohort: CohortPolicy(queue.cohort) for queue in queues if queue.cohort},
        preemption or {},
        ClusterPolicy(**fields),
    )


def queue(name: str, nominal: int | None = None, *limits: int | None, **fields) -> QueuePolicy:
    return QueuePolicy(name, quotas={} if nominal is None else {GPU: Quota(nominal, *limits)},
                       **fields)  # fmt: skip


def sizes(made: Plan) -> list[tuple[str, int, int]]:
    """(job, from, to) of every command, by job."""
    return sorted((c.workload.name, c.from_replicas, c.to_replicas) for c in made.commands)


def decision(made: Plan, name: str):
    return next(d for d in made.decisions if d.workload.name == name)


def why(made: Plan, name: str) -> ReasonCode:
    return decision(made, name).reason.code


def waits_for(made: Plan, name: str) -> ReasonCode:
    return next(p.reason.code for p in made.pending if p.workload_or_pod.endswith(f"/{name}"))


def drive(snapshot: ClusterSnapshot, policies: PolicySet, cycles: int):
    """The commands of every cycle that has any, all of them carried out, and the snapshot after the
    last. What leaves is gone two cycles later."""
    found, now = [], NOW
    for _ in range(cycles):
        made = plan(snapshot, policies, now)
        if made.commands:
            found.append(sizes(made))
        snapshot = carried_out(snapshot, policies, made)
        now += CYCLE_S
    return found, snapshot


def granted(snapshot: ClusterSnapshot) -> dict[str, int]:
    return {w.key.name: 0 if w.suspended else w.granted for w in snapshot.workloads}


# -- elastic accounting ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queues", "want"),
    [
        ([queue("q", 16)], []),
        ([queue("q", 23)], []),
        ([queue("q", 24)], [("a", 2, 3)]),
        ([queue("q", 16, cohort="c"), queue("other", 8, cohort="c")], [("a", 2, 3)]),
        ([queue("q", 16, 0, cohort="c"), queue("other", 8, cohort="c")], []),
        ([queue("q", 16, cohort="c"), queue("other", 8, None, 0, cohort="c")], []),
    ],
)
def test_kueue_11977_growth_stays_within_the_quota(queues, want):
    made = plan(cluster(4, running("a", NAMES[:2], queue="q")), rules(queues=queues), NOW)
    assert sizes(made) == want
    if not want:
        assert why(made, "a") is ReasonCode.QUOTA_EXHAUSTED


def test_kueue_11977_every_accelerator_of_a_replica_counts():
    amounts = {GPU: 8, "example.com/hca": 2, "cpu": 128_000}
    nodes = make_nodes(4, allocatable=amounts, capacity=amounts)
    job = running("a", ["n00"], queue="q", shape=ReplicaShape(1, {GPU: 4, "example.com/hca": 1}))
    quotas = {GPU: Quota(64), "example.com/hca": Quota(2)}
    made = plan(cluster(nodes, job), rules(queues=[QueuePolicy("q", quotas=quotas)]), NOW)
    assert sizes(made) == [("a", 1, 2)]


@pytest.mark.parametrize("policy", ["elastic", "two"])
def test_kueue_11977_a_suspended_job_holds_nothing_of_the_quota(policy):
    """Its size stays written in it."""
    policies = rules(make_policy(), make_policy("two", min_replicas=2), queues=[queue("q", 16)])
    made = plan(cluster(4, suspended("a", 2, queue="q", policy=policy)), policies, NOW)
    assert [(c.kind, c.to_replicas) for c in made.commands] == [
        (CommandKind.ADMIT, 2 if policy == "two" else 1)
    ]


def test_kueue_11977_what_is_granted_and_lost_counts_once():
    """Of the minimum of 3 one is granted already, though its pod is gone."""
    policies = rules(make_policy(min_replicas=3), queues=[queue("q", 24)])
    made = plan(cluster(4, running("a", [None], queue="q")), policies, NOW)
    assert sizes(made) == [("a", 1, 3)]


def test_kueue_9329_equal_totals_of_other_groups_are_a_change():
    """A2, B2 become A3, B1: B's pod leaves, and A waits for its place."""
    a, pods = running("a", ["n00", "n01"])
    b, others = running("b", ["n02", "n03"])
    changed = [
        (dataclasses.replace(a, granted=3), pods),
        (dataclasses.replace(b, granted=1), others),
    ]
    made = plan(cluster(4, *changed), rules(), NOW)
    assert sizes(made) == []
    assert waits_for(made, "a") is ReasonCode.WAITS_FOR_RELEASE


def test_kueue_6384_what_a_shrink_frees_starts_the_next_job_at_once():
    policies = rules(make_policy(max_replicas=2), make_policy("gang", min_replicas=2))
    shrinking = running("a", NAMES[:4])
    snapshot = cluster(4, shrinking, suspended("b", 2, policy="gang"))
    assert drive(snapshot, policies, 8)[0] == [[("a", 4, 2)], [("b", 2, 2)]]


def test_kueue_6969_a_minimum_that_was_raised_is_reclaimed():
    policies = rules(make_policy(), make_policy("four", min_replicas=4))
    high = running("high", NAMES[:2], policy="four", priority=200)
    snapshot = cluster(8, running("low", NAMES[2:8]), high)
    assert drive(snapshot, policies, 8)[0] == [[("low", 6, 4)], [("high", 2, 4)]]


def test_kueue_3151_after_an_eviction_a_job_comes_back_to_its_own_size():
    """Admitted with less, preempted, and grown again once there is room: to its maximum."""
    policies = rules(make_policy(min_replicas=2, max_replicas=4),
                     preemption={"whole": ReclaimPolicy.PREEMPT_WHOLE})  # fmt: skip
    low = running("low", NAMES[:2])
    urgent = waiting("web", 2, priority_class="whole")
    snapshot = cluster(2, low, pods=urgent)
    found, after = drive(snapshot, policies, 8)
    assert found == [[("low", 2, 0)]]
    free = dataclasses.replace(after, pods=(), nodes=make_nodes(5))
    found, after = drive(dataclasses.replace(free, taken_at=NOW), policies, 8)
    assert found == [[("low", 2, 2)], [("low", 2, 4)]]
    assert granted(after) == {"low": 4}


# -- victims and cost ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "want"),
    [
        ({}, [("new", 2, 1)]),
        ({make_key("old"): History(last_resize_at=NOW - 10)}, [("old", 4, 3)]),
    ],
)
def test_kueue_840_the_newest_borrower_gives(history, want):
    """Queue b owns 40 and holds 48. What came last, a job or a growth, is what is borrowed."""
    queues = [queue("a", 8, cohort="c"), queue("b", 40, cohort="c")]
    old = running("old", NAMES[:4], queue="b", created_at=NOW - 9000)
    new = running("new", NAMES[4:6], queue="b", created_at=NOW - 100)
    made = plan(
        cluster(6, old, new, suspended("own", queue="a"), history=history),
        rules(queues=queues), NOW,
    )  # fmt: skip
    assert sizes(made) == want
    assert made.commands[0].reason.code is ReasonCode.SHRINKS_TO_QUOTA


def test_kueue_840_what_is_the_queues_own_stays():
    """It borrows 8 and 24 are asked for: the owner gets its 8 back, and no more."""
    queues = [queue("a", 8, cohort="c"), queue("b", 24, cohort="c")]
    policies = rules(make_policy(), make_policy("three", min_replicas=3), queues=queues)
    snapshot = cluster(
        4, running("b", NAMES[:4], queue="b"), suspended("a", queue="a", policy="three")
    )
    assert sizes(plan(snapshot, policies, NOW)) == []


@pytest.mark.parametrize(("low", "want"), [(1, 3), (2, 2), (3, 1)])
def test_volcano_2627_a_start_takes_its_minimum_and_no_more(low, want):
    policies = rules(make_policy(), make_policy("high", min_replicas=low, max_replicas=4))
    snapshot = cluster(
        4, running("low", NAMES[:4]), suspended("high", 4, policy="high", priority=200)
    )
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == [("low", 4, want)]
    assert why(made, "high") is ReasonCode.RECLAIMS


def test_kueue_1309_a_gang_of_two_gets_two_whole_nodes():
    """Halves lie on n00 to n03 beside others that stay; n04 to n06 can be freed whole."""
    half = make_workload("half", granted=4, shape=make_shape(4), priority=10)
    beside = [make_pod(f"x{i}", gpus=4, node=NAMES[i]) for i in range(4)]
    whole = running("whole", NAMES[4:7], priority=50)
    gang = suspended("gang", 2, policy="two", priority=200)
    snapshot = cluster(7, (half, make_replicas(half, NAMES[:4])), whole, gang, pods=beside)
    made = plan(snapshot, rules(make_policy(), make_policy("two", min_replicas=2)), NOW)
    assert sizes(made) == [("whole", 3, 1)]


def test_kueue_1309_named_victims_free_one_node():
    """Replicas of 4 lie on n00 and n01 in turn: two of them are a node, not three."""
    job = make_workload("a", granted=4, shape=make_shape(4), victims=VictimChoice.NAMED)
    pods = make_replicas(job, ["n00", "n01", "n00", "n01"])
    made = plan(cluster(2, (job, pods), pods=waiting("web")), rules(), NOW)
    assert sizes(made) == [("a", 4, 2)]
    assert len({p.node for p in pods if p.name in made.commands[0].victims}) == 1


@pytest.mark.parametrize(
    ("dead", "want"),
    [(None, ("a-1", "a-3")), ("a-2", ("a-1",))],
)
def test_kuberay_208_the_pod_that_was_named_leaves_first(dead, want):
    """The job names a-1. Another pod that dies by itself takes no healthy one with it."""
    job, pods = running("a", NAMES[:4], victims=VictimChoice.NAMED, hints=("a-1",))
    pods = [
        dataclasses.replace(p, phase=PodPhase.FAILED, ready=False) if p.name == dead else p
        for p in pods
    ]
    made = plan(cluster(4, (job, pods)), rules(make_policy(max_replicas=2)), NOW)
    assert sizes(made) == [("a", 4, 2)]
    assert made.commands[0].victims == want


@pytest.mark.parametrize(
    ("trouble", "victims", "want"),
    [
        ({"unschedulable": True}, VictimChoice.NAMED, ("a-1",)),
        ({"ready": False}, VictimChoice.NAMED, ("a-1",)),
        ({"unhealthy": {GPU: 1}}, VictimChoice.NAMED, ("a-1",)),
        ({}, VictimChoice.NAMED, ("a-2",)),
        ({"unschedulable": True}, VictimChoice.HIGHEST_INDEX, ("a-2",)),
    ],
)
def test_mpi_operator_410_the_replica_on_the_draining_node_leaves_first(trouble, victims, want):
    """Where victims can be named; an Indexed Job gives up its highest index (KEP-3715)."""
    job = running("a", NAMES[:3], victims=victims)
    nodes = [make_node("n00"), make_node("n01", **trouble), make_node("n02")]
    made = plan(cluster(nodes, job), rules(make_policy(max_replicas=2)), NOW)
    assert made.commands[0].victims == want


def test_mpi_operator_410_a_named_replica_that_does_not_run_is_the_one_to_give_up():
    """After the fault time-out it goes, wherever it stands in line."""
    job, pods = running("a", NAMES[:3], victims=VictimChoice.NAMED)
    pods = [dataclasses.replace(pods[0], ready=False), *pods[1:]]
    snapshot = cluster(3, (job, pods), history={job.key: History(short_since=NOW - 900)})
    made = plan(snapshot, rules(), NOW)
    assert sizes(made) == [("a", 3, 2)]
    assert made.commands[0].victims == ("a-0",)


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


# -- capacity --------------------------------------------------------------------------------


def test_kueue_9616_a_taint_between_decision_and_pod_is_planned_again():
    """The growth isn't written any more; if it was, its pod gets another node, or the job goes
    back to what runs once its fault time-out is over."""
    taint = Taint("node.example.com/broken", "", "NoSchedule")
    job, pods = running("a", ["n00"])
    reason = because(ReasonCode.GROWS, from_=1, to=2)
    grows = Command(CommandKind.RESIZE, job.key, 1, 2, (), "1", reason)
    tainted = [make_node("n00"), make_node("n01", taints=(taint,))]
    assert still_valid(grows, cluster(2, (job, pods)), NOW) is None
    refused = still_valid(grows, cluster(tainted, (job, pods)), NOW)
    assert refused is not None
    assert refused.code is ReasonCode.NO_LONGER_FITS
    stuck = running("a", ["n00", None])
    elsewhere = plan(cluster([*tainted, make_node("n02")], stuck), rules(), NOW)
    assert waits_for(elsewhere, "a") is ReasonCode.FITS
    late = {stuck[0].key: History(short_since=NOW - 300)}
    assert sizes(plan(cluster(tainted, stuck, history=late), rules(), NOW)) == [("a", 2, 1)]


def test_kueue_9616_what_is_planned_beside_a_waiting_pod_may_be_written():
    """A pod of higher priority gets half of the free node; the replica that a running job lost no
    longer fits there, a small start does: the check before writing must come to the same."""
    hurt = running("hurt", ["n00", None])
    small = suspended("small", shape=make_shape(2))
    snapshot = cluster(2, hurt, small, pods=waiting("web", gpus=4))
    (command,) = plan(snapshot, rules(), NOW).commands
    assert command.workload.name == "small"
    assert still_valid(command, snapshot, NOW) is None


def test_kueue_14570_what_is_in_flight_is_given_once():
    """A start under way holds the only place against one of higher priority, too."""
    first = suspended("first", priority=50)
    flight = make_flight(first[0], 1, from_replicas=0)
    snapshot = cluster(1, first, suspended("second", priority=100), in_flight=[flight])
    assert sizes(plan(snapshot, rules(), NOW)) == []


def test_kueue_14570_two_queues_get_the_same_eight_once():
    """8 that a cohort can lend and two jobs of two queues, with places for both."""
    queues = [queue("a", 0, cohort="c"), queue("b", 0, cohort="c"), queue("own", 8, cohort="c")]
    snapshot = cluster(4, suspended("one", queue="a"), suspended("two", queue="b"))
    made = plan(snapshot, rules(queues=queues), NOW)
    assert sizes(made) == [("one", 1, 1)]
    assert why(made, "two") is ReasonCode.WAITS_FOR_QUOTA


@pytest.mark.parametrize(
    ("hurt", "code", "missing"), [(0, ReasonCode.FITS, None), (2, ReasonCode.NO_CAPACITY, 8)]
)
def test_volcano_5911_free_is_by_device_and_the_reason_says_what_is_missing(hurt, code, missing):
    """32 accelerators, 16 used; one dies: a used one takes nothing from 16 that are free, a free
    one takes a whole place."""
    nodes = list(make_nodes(4))
    nodes[hurt] = dataclasses.replace(
        nodes[hurt], allocatable={**nodes[hurt].allocatable, GPU: 7}, unhealthy={GPU: 1}
    )
    used = [make_pod(f"u{i}", node=NAMES[i]) for i in range(2)]
    made = plan(cluster(nodes, pods=[*used, *waiting("web", 2)]), rules(), NOW)
    assert made.pending[0].reason.code is code
    assert made.pending[0].reason.numbers.get("accelerators") == missing


def test_kueue_14811_a_command_that_is_over_reserves_nothing():
    """A start that timed out: its places are free for another at once."""
    gone = suspended("gone", priority=50)
    under_way = cluster(1, gone, suspended("next", priority=100),
                        in_flight=[make_flight(gone[0], 1, from_replicas=0)])  # fmt: skip
    assert sizes(plan(under_way, rules(), NOW)) == []
    over = dataclasses.replace(under_way, in_flight=())
    made = plan(over, rules(), NOW)
    assert sizes(made) == [("next", 1, 1)]


def test_trainer_1593_pods_that_failed_on_their_way_out_are_ignored():
    job, pods = running("a", NAMES[:4])
    failed = [dataclasses.replace(p, phase=PodPhase.FAILED, ready=False) for p in pods[2:]]
    shrunk = (dataclasses.replace(job, granted=2), [*pods[:2], *failed])
    made = plan(cluster(2, shrunk), rules(), NOW)
    assert (sizes(made), made.pending) == ([], ())
    assert decision(made, "a").short_since is None


# -- whole jobs ------------------------------------------------------------------------------

WHOLE = {"whole": ReclaimPolicy.PREEMPT_WHOLE, "never": ReclaimPolicy.NEVER}


@pytest.mark.parametrize(
    ("pods", "class_", "want"),
    [
        (1, "whole", [("b", 4, 3)]),  # elastic surplus first, of the lowest priority
        (3, "whole", [("a", 2, 1), ("b", 4, 2)]),  # then that of the next
        (4, "whole", [("a", 2, 1), ("b", 4, 0)]),  # then whole jobs, the lowest first
        (6, "whole", [("a", 2, 0), ("b", 4, 0)]),
        (4, "elastic", [("a", 2, 1), ("b", 4, 2)]),
        (1, "never", []),
    ],
)
def test_whole_jobs_go_only_after_all_elastic_surplus(pods, class_, want):
    """b of priority 50 has 4 of at least 2, a of priority 100 has 2 of at least 1."""
    policies = rules(make_policy(), make_policy("two", min_replicas=2), preemption=WHOLE)
    a, b = running("a", NAMES[:2]), running("b", NAMES[2:6], policy="two", priority=50)
    snapshot = cluster(6, a, b, pods=waiting("web", pods, priority_class=class_))
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == want
    for command in made.commands:
        gone = command.to_replicas == 0
        assert command.kind is (CommandKind.SUSPEND if gone else CommandKind.RESIZE)
        assert command.reason.code is (
            ReasonCode.PREEMPTED if gone else ReasonCode.SHRINKS_FOR_PRIORITY
        )
        assert len(command.victims) == command.from_replicas - command.to_replicas


def test_equal_priority_is_never_preempted_whole():
    snapshot = cluster(
        1, running("a", ["n00"]), pods=waiting("web", priority=100, priority_class="whole")
    )
    assert sizes(plan(snapshot, rules(preemption=WHOLE), NOW)) == []


def test_a_suspension_under_way_is_waited_for():
    """Its places come free; it isn't started again, and nobody else is suspended."""
    low, pods = running("low", ["n00"], priority=50)
    flight = make_flight(low, 0, state="applying")
    other = running("other", ["n01"], priority=60)
    web = waiting("web", priority_class="whole")
    snapshot = cluster(2, (low, pods), other, pods=web, in_flight=[flight])
    made = plan(snapshot, rules(preemption=WHOLE), NOW)
    assert sizes(made) == []
    assert why(made, "low") is ReasonCode.IN_FLIGHT
    assert waits_for(made, "web") is ReasonCode.WAITS_FOR_RELEASE


@pytest.mark.parametrize("uid", ["uid-low", "another"])
def test_a_command_names_the_object_that_it_was_decided_for(uid):
    """A job that was deleted and made anew under its name isn't touched by an old command."""
    low, pods = running("low", NAMES[:2])
    (command,) = plan(cluster(2, (low, pods), pods=waiting("web")), rules(), NOW).commands
    assert (command.uid, command.precondition) == ("uid-low", "1")
    refused = still_valid(command, cluster(2, (dataclasses.replace(low, uid=uid), pods)), NOW)
    assert (refused is None) == (uid == "uid-low")


@pytest.mark.parametrize(
    ("ratio", "want"), [(1.0, 1), (0.9, 1), (0.7, 3), (0.5, 5), (0.25, 8), (0.05, 9)]
)
def test_one_cycle_takes_at_most_the_disruption_ratio_of_a_job(ratio, want):
    """Of 10 replicas, and 10 pods wait. Rounded down, exactly; but at least one may go."""
    snapshot = cluster(10, running("a", NAMES[:10]), pods=waiting("web", 10))
    made = plan(snapshot, rules(make_policy(max_replicas=10), max_disruption_ratio=ratio), NOW)
    assert sizes(made) == [("a", 10, want)]


def test_the_disruption_ratio_binds_a_call_back_of_quota_too():
    queues = [queue("b", 0, cohort="c"), queue("o", 64, cohort="c")]
    policies = rules(
        make_policy(), make_policy("four", min_replicas=4), queues=queues, max_disruption_ratio=0.25
    )
    snapshot = cluster(
        8, running("b", NAMES[:8], queue="b"), suspended("o", queue="o", policy="four")
    )
    first = plan(snapshot, policies, NOW)
    assert all(before - after <= 2 for _, before, after in sizes(first))


def test_a_gang_that_needs_more_than_the_disruption_ratio_allows_takes_nothing_and_says_why():
    """Bit by bit over several cycles would leave places idle, and jobs short, for a gang that may
    never be whole."""
    policies = rules(
        make_policy(), make_policy("four", min_replicas=4, max_replicas=4),
        max_disruption_ratio=0.25,
    )  # fmt: skip
    snapshot = cluster(
        8, running("low", NAMES[:8]), suspended("gang", 4, policy="four", priority=500)
    )
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == []
    (waits,) = made.pending
    assert [(r.candidate, r.reason.code) for r in waits.rejected] == [
        ("Job/ml/low", ReasonCode.DISRUPTION_BOUND)
    ]


def test_a_disruption_ratio_that_never_lets_a_job_go_takes_nothing_or_lets_it_go_in_the_end():
    """A class that preempts whole jobs, and one that can only fall to half in each cycle."""
    low = make_workload("low", granted=2, shape=make_shape(1))
    snapshot = cluster(
        1, (low, make_replicas(low, ["n00"] * 2)), pods=waiting("web", priority_class="whole")
    )
    policies = rules(make_policy(max_replicas=2), preemption=WHOLE, max_disruption_ratio=0.5)
    found, _ = drive(snapshot, policies, 12)
    assert found in ([], [[("low", 2, 1)], [("low", 1, 0)]])


def test_no_job_is_suspended_for_one_pod_when_the_next_pod_frees_enough_for_both():
    """Freeing n00 costs least for the first pod; the second needs the gang of three anyway."""
    policies = rules(
        make_policy(max_replicas=1), make_policy("three", min_replicas=3), preemption=WHOLE
    )
    low = make_workload("low", granted=1, shape=make_shape(4))
    gang = running("gang", NAMES[1:4], policy="three")
    snapshot = cluster(
        4, (low, make_replicas(low, ["n00"])), gang, pods=waiting("web", 2, priority_class="whole")
    )
    assert sizes(plan(snapshot, policies, NOW)) == [("gang", 3, 0)]


# -- topology --------------------------------------------------------------------------------


def racks(*of: str | None):
    return [make_node(NAMES[i], labels={RACK: r} if r else {}) for i, r in enumerate(of)]


def in_rack(required: bool):
    return make_shape(topology=RACK, topology_required=required)


@pytest.mark.parametrize(
    ("nodes", "required", "want"),
    [
        (("a", "a", "b", "b"), True, [("gang", 2, 2)]),
        (("a", "b", "c", "d"), True, []),
        (("a", "b", "c", "d"), False, [("gang", 2, 2)]),
        (("a", None, None, None), True, []),
        ((None, None), False, [("gang", 2, 2)]),
    ],
)
def test_a_gang_starts_within_one_rack_or_only_prefers_to(nodes, required, want):
    gang = suspended("gang", 2, shape=in_rack(required), policy="two")
    policies = rules(make_policy("two", min_replicas=2, max_replicas=2), topology_levels=(RACK,))
    assert sizes(plan(cluster(racks(*nodes), gang), policies, NOW)) == want


@pytest.mark.parametrize(("required", "want"), [(True, [("a", 1, 2)]), (False, [("a", 1, 4)])])
def test_growth_stays_in_the_rack_where_that_is_required(required, want):
    job = running("a", ["n00"], shape=in_rack(required))
    made = plan(cluster(racks("a", "a", "b", "b"), job), rules(topology_levels=(RACK,)), NOW)
    assert sizes(made) == want


def test_a_reclaim_for_a_gang_frees_places_of_one_rack():
    """`wide` has one replica above its minimum in each rack, `b` both in rack b."""
    policies = rules(make_policy(), make_policy("two", min_replicas=2, max_replicas=2))
    wide = running("wide", ["n00", "n02"], priority=10)
    narrow = running("narrow", ["n04", "n05", "n03"], priority=50)
    gang = suspended("gang", 2, shape=in_rack(True), policy="two", priority=200)
    snapshot = cluster(racks("a", "b", "c", "c", "c", "c"), wide, narrow, gang,
                       pods=[make_pod("busy", node="n01")])  # fmt: skip
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == [("narrow", 3, 2), ("wide", 2, 1)]
    freed = {p.node for p in snapshot.pods for c in made.commands if p.name in c.victims}
    assert freed == {"n02", "n03"}


def test_a_reclaim_frees_nothing_outside_of_the_level_that_is_required():
    """The only node with a rack is taken for good: the pod of the others would be of no use."""
    gang = suspended("gang", shape=in_rack(True), policy="one", priority=500)
    policies = rules(make_policy(), make_policy("one", max_replicas=1))
    snapshot = cluster(
        racks("a", None, None), running("low", ["n01", "n02"]), gang,
        pods=[make_pod("busy", node="n00")],
    )  # fmt: skip
    assert sizes(plan(snapshot, policies, NOW)) == []


def test_all_replicas_that_come_back_at_once_fit_one_rack_or_do_not_fit():
    job = make_workload("a", granted=2, policy="two", shape=in_rack(True))
    pods = [*make_replicas(job, [None, None]), make_pod("x", node="n00"), make_pod("y", node="n02")]
    snapshot = make_snapshot(racks("a", "a", "b", "b"), pods, [job])
    made = plan(snapshot, rules(make_policy("two", min_replicas=2)), NOW)
    assert waits_for(made, "a") is ReasonCode.NO_CAPACITY


# -- reservations, spares, reserves ----------------------------------------------------------

PATIENT = queue("q", reserve_after_s=600.0)


def head(**fields):
    """A gang of 2 that has waited for 900 s."""
    return suspended("head", 2, policy="two", queue="q", created_at=NOW - 900, **fields)


@pytest.mark.parametrize(
    ("q", "want", "reserved"),
    [
        (PATIENT, [], {"n01": {GPU: 8}}),
        (queue("q", reserve_after_s=901.0), [("a", 1, 2)], None),
        (queue("q"), [("a", 1, 2)], None),
    ],
)
def test_a_head_that_has_waited_long_gets_what_comes_free(q, want, reserved):
    policies = rules(make_policy(), make_policy("two", min_replicas=2), queues=[q])
    snapshot = cluster(2, running("a", ["n00"]), head())
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == want
    assert [(r.demand, r.nodes) for r in made.reservations] == (
        [("Job/ml/head", reserved)] if reserved else []
    )
    if reserved:
        assert waits_for(made, "head") is ReasonCode.RESERVES


def test_what_is_behind_a_reservation_starts_only_beside_it():
    policies = rules(
        make_policy(max_replicas=1), make_policy("two", min_replicas=2), queues=[PATIENT]
    )
    busy = [make_pod("busy", node="n00")]
    behind = suspended("behind", queue="q", created_at=NOW - 10)
    tight = plan(cluster(2, head(), behind, pods=busy), policies, NOW)
    assert sizes(tight) == []
    assert why(tight, "behind") is ReasonCode.WAITS_FOR_RESERVATION
    roomy = plan(cluster(3, head(), behind, pods=busy), policies, NOW)
    assert sizes(roomy) == [("head", 2, 2)]


def test_a_reservation_wakes_the_loop_when_it_is_due():
    policies = rules(make_policy("two", min_replicas=2), queues=[PATIENT])
    young = suspended("head", 2, policy="two", queue="q", created_at=NOW - 100)
    assert plan(cluster(1, young), policies, NOW).next_wake == NOW + 500


def test_a_reservation_is_of_one_rack_where_that_is_required():
    policies = rules(make_policy("two", min_replicas=2), queues=[PATIENT])
    busy = [make_pod("x", node="n00"), make_pod("y", node="n02")]
    snapshot = cluster(racks("a", "a", "b", "b"), head(shape=in_rack(True)), pods=busy)
    made = plan(snapshot, policies, NOW)
    assert [list(r.nodes) for r in made.reservations] == [["n01"]]


def test_nothing_is_reserved_for_what_the_cluster_could_never_hold():
    policies = rules(make_policy(), make_policy("two", min_replicas=9, max_replicas=9),
                     queues=[PATIENT])  # fmt: skip
    made = plan(cluster(2, running("a", ["n00"]), head()), policies, NOW)
    assert (sizes(made), made.reservations) == ([("a", 1, 2)], ())


@pytest.mark.parametrize(
    ("kept", "want"),
    [
        ({}, [("a", 1, 4)]),
        ({"spares": {GPU: 8}}, [("a", 1, 3)]),
        ({"reserves": {GPU: 8}}, [("a", 1, 3)]),
        ({"spares": {GPU: 8}, "reserves": {GPU: 8}}, [("a", 1, 2)]),
        ({"spares": {GPU: 24}}, []),
        ({"spares": {AMD: 24}}, [("a", 1, 4)]),
    ],
)
def test_growth_keeps_spares_and_reserves_free(kept, want):
    made = plan(cluster(4, running("a", ["n00"])), rules(**kept), NOW)
    assert sizes(made) == want
    if not want:
        assert why(made, "a") is ReasonCode.CAPACITY_KEPT


def test_repairs_and_demand_use_what_growth_keeps_free():
    hurt = running("hurt", ["n00", None])
    snapshot = cluster(4, hurt, suspended("new"), pods=waiting("web"))
    made = plan(snapshot, rules(make_policy(max_replicas=2), spares={GPU: 24}), NOW)
    assert sizes(made) == [("new", 1, 1)]
    assert {waits_for(made, name) for name in ("hurt", "web", "new")} == {ReasonCode.FITS}


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


# -- damping ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("ago", "want"), [(30, ReasonCode.BACKING_OFF), (61, ReasonCode.GROWS)])
def test_after_a_resize_that_failed_growth_backs_off(ago, want):
    history = {make_key("a"): History(failed_resizes=(NOW - ago,))}
    made = plan(cluster(2, running("a", ["n00"]), history=history), rules(), NOW)
    assert why(made, "a") is want
    assert made.next_wake == (NOW + 30 if want is ReasonCode.BACKING_OFF else None)


def test_a_giver_that_rests_wakes_the_loop():
    policies = rules(make_policy(), make_policy("three", max_replicas=3, cooldown=60.0))
    history = {make_key("a"): History(last_resize_at=NOW - 10)}
    jobs = running("a", NAMES[:3], policy="three"), running("b", ["n03"])
    made = plan(cluster(4, *jobs, history=history), policies, NOW)
    assert sizes(made) == []
    assert made.next_wake == NOW + 50


def test_a_job_that_rests_without_room_does_not_say_that_it_has_its_maximum():
    nodes = [make_node(NAMES[i], labels={"zone": "a" if i < 2 else "b"}) for i in range(4)]
    a, b = (make_shape(node_selector={"zone": zone}) for zone in "ab")
    snapshot = cluster(
        nodes, running("a", NAMES[:2], shape=a), running("b", ["n02"], shape=b),
        history={make_key("a"): History(last_resize_at=NOW - 5)},
    )  # fmt: skip
    made = plan(snapshot, rules(make_policy(cooldown=60.0)), NOW)
    assert sizes(made) == [("b", 1, 2)]
    assert why(made, "a") is ReasonCode.NO_ROOM


NIGHTS = {"name": "nights", "from": "20:00", "until": "06:00", "timezone": "UTC"}
DAY_S = 86_400.0
#: a midnight
MIDNIGHT = NOW // DAY_S * DAY_S


@pytest.mark.parametrize(
    ("hour", "bounds", "want", "code"),
    [
        (21, {"max_replicas": 2}, [("a", 4, 2)], ReasonCode.SHRINKS_TO_SCHEDULE),
        (19, {"max_replicas": 2}, [], ReasonCode.AT_MAXIMUM),
        (21, {"max_replicas": 6}, [("a", 4, 6)], ReasonCode.GROWS),
        (19, {"max_replicas": 6}, [], ReasonCode.AT_MAXIMUM),
        (21, {"min_replicas": 6, "max_replicas": 8}, [("a", 4, 6)], ReasonCode.GROWS_TO_MINIMUM),
    ],
)
def test_a_window_of_the_schedule_changes_the_bounds(hour, bounds, want, code):
    now = MIDNIGHT + hour * 3600
    policy = make_policy(max_replicas=4, schedule=({**NIGHTS, **bounds},))
    made = plan(cluster(8, running("a", NAMES[:4]), taken_at=now), rules(policy), now)
    assert sizes(made) == want
    assert why(made, "a") is code
    if not made.pending:  # what fits is looked at again when it should have been bound
        assert made.next_wake == MIDNIGHT + (20 if hour < 20 else 30) * 3600


# -- nodes that leave, offend or hang ---------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "nodes", "victims", "want"),
    [
        (NOW + 60, ["n00", "n01"], VictimChoice.HIGHEST_INDEX, [("a", 2, 1)]),
        (None, ["n00", "n01"], VictimChoice.HIGHEST_INDEX, [("a", 2, 1)]),
        (NOW + 9000, ["n00", "n01"], VictimChoice.HIGHEST_INDEX, []),
        (NOW + 60, ["n01", "n00"], VictimChoice.HIGHEST_INDEX, []),
        (NOW + 60, ["n01", "n00"], VictimChoice.NAMED, [("a", 2, 1)]),
    ],
)
def test_replicas_leave_before_their_node_does(at, nodes, victims, want):
    """n01 leaves. Only the last replicas of an Indexed Job can go, and never the minimum."""
    leaves = make_node("n01", departure=Departure("maintenance", at, "annotation"))
    job = running("a", nodes, victims=victims)
    made = plan(cluster([make_node("n00"), leaves], job), rules(), NOW)
    assert sizes(made) == want
    if want:
        assert made.commands[0].reason.code is ReasonCode.SHRINKS_BEFORE_DEPARTURE
        assert made.commands[0].victims == (f"a-{nodes.index('n01')}",)
    announced = at is None or at < NOW + 3600
    assert [n.subject for n in made.notices] == (["Node/n01"] if announced else [])
    assert made.next_wake == (None if announced else at - 3600)


def test_nothing_new_goes_to_a_repeat_offender_until_it_has_rested():
    faults = {"n01": NodeHistory((NOW - 300, NOW - 200, NOW - 100))}
    made = plan(cluster(2, running("a", ["n00"]), node_history=faults), rules(), NOW)
    assert sizes(made) == []
    assert [(n.subject, n.reason.code) for n in made.notices] == [
        ("Node/n01", ReasonCode.REPEAT_OFFENDER)
    ]
    assert made.next_wake == NOW - 100 + 14_400
    rested = rules(offender_rest_s=60.0)
    snapshot = cluster(2, running("a", ["n00"]), node_history=faults)
    assert sizes(plan(snapshot, rested, NOW)) == [("a", 1, 2)]


@pytest.mark.parametrize(("late", "want"), [(299.0, []), (300.0, ["Pod/ml/old"])])
def test_a_pod_that_hangs_is_escalated_and_still_held(late, want):
    old = make_pod("old", node="n00", deleting=True, deletion_due=NOW - late)
    made = plan(cluster(1, pods=[old, *waiting("web")]), rules(), NOW)
    assert [n.subject for n in made.notices] == want
    assert made.accounting.totals[GPU] == {"terminating": 8}
    assert waits_for(made, "web") is ReasonCode.WAITS_FOR_RELEASE


@pytest.mark.parametrize(("apart", "want"), [(30.0, ["Job/ml/a"]), (90.0, [])])
def test_a_job_that_went_up_and_back_within_its_cooldown_is_told(apart, want):
    moves = (Move(NOW - 200, 1, 2), Move(NOW - 200 + apart, 2, 1))
    history = {make_key("a"): History(moves=moves)}
    snapshot = cluster(1, running("a", ["n00"]), history=history)
    made = plan(snapshot, rules(make_policy(cooldown=60.0)), NOW)
    assert [n.subject for n in made.notices] == want
