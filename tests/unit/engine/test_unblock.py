"""What would let a demand go on: exact answers, each of which really is enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.engine.placement import PodShape, accepts, shape_of
from controlplane.engine.reasons import Reason, ReasonCode
from controlplane.engine.snapshot import ClusterSnapshot, Node
from controlplane.engine.types import ReclaimPolicy, Requirement, Taint, Toleration
from controlplane.engine.unblock import Missing, Remedies, Surplus
from tests.builders import GPU, make_node, make_shape, make_snapshot

NEVER, ELASTIC, WHOLE = (
    ReclaimPolicy.NEVER,
    ReclaimPolicy.RECLAIM_ELASTIC,
    ReclaimPolicy.PREEMPT_WHOLE,
)
SPOT = Taint("spot", "true", "NoSchedule")
TEAM = Taint("team", "vision", "NoExecute")
LOST = Taint("node.kubernetes.io/unreachable", "", "NoExecute")
CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
A100 = {"accelerator": "a100"}
ROOMY = {"cpu": 10**6, "memory": 2**50}


def missing(pods: int = 1, gpus: int = 8, **fields: Any) -> Missing:
    """`pods` pods of 8 accelerators without a place."""
    asked = {k: fields.pop(k) for k in ("tolerations", "node_selector", "affinity") if k in fields}
    values: dict[str, Any] = {
        "name": "Job/ml/waits",
        "priority": 100,
        "priority_class": "training",
        "shape": shape_of(make_shape(gpus, **asked)),
        "pods": pods,
        "pods_together": 1,
        "placed": 0,
        "queue": "q",
        "quota_missing": 0,
        "reclaim": NEVER,
        **fields,
    }
    return Missing(**values)


def gives(name: str, priority: int, whole: int = 0, **above: int) -> Surplus:
    """A job that gives so many accelerators on each node above its minimum, and `whole` more on
    each of them if it is preempted."""
    return Surplus(
        f"Job/ml/{name}",
        priority,
        {node: {GPU: n} for node, n in above.items()},
        {node: {GPU: n + whole} for node, n in above.items()},
    )


def answers(
    want: Missing, nodes: Sequence[Node], free: Mapping[str, int], *surplus: Surplus, **fields: Any
) -> list[tuple[str, dict[str, Any]]]:
    amounts = {node.name: {GPU: free.get(node.name, 0), **ROOMY} for node in nodes}
    remedies = Remedies.of(make_snapshot(nodes), amounts, surplus, **fields)
    return [(str(reason.code), dict(reason.numbers)) for reason in remedies.for_(want)]


def shut(name: str, **fields: Any) -> Node:
    return make_node(name, unschedulable=True, taints=(CORDONED,), **fields)


CASES: list[tuple[str, Missing, list[Node], dict[str, int], list[Surplus], list[Any]]] = [
    (
        "all have places: they are being released",
        missing(2, placed=2),
        [make_node("n0")],
        {},
        [],
        [("wait_for_release", {})],
    ),
    (
        "what is missing will be free",
        missing(2),
        [make_node("n0"), make_node("n1")],
        {"n0": 8, "n1": 8},
        [],
        [("wait_for_release", {})],
    ),
    (
        "the fewest cordoned nodes, the roomiest first",
        missing(3),
        [make_node("n0"), shut("n1", gpus=8), shut("n2", gpus=16), shut("n3", gpus=8)],
        {"n0": 8, "n1": 8, "n2": 16, "n3": 8},
        [],
        [("uncordon_nodes", {"nodes": "n2"})],
    ),
    (
        "a cordoned node that isn't ready is no help",
        missing(),
        [shut("n1", ready=False)],
        {"n1": 8},
        [],
        [("add_nodes", {"nodes": 1, "accelerators": 8, "resource": GPU})],
    ),
    (
        "a taint that one toleration answers",
        missing(2),
        [make_node("n0", taints=(SPOT,)), make_node("n1", taints=(SPOT,)), make_node("n2")],
        {"n0": 8, "n1": 8},
        [],
        [("tolerate_taint", {"taint": "spot=true:NoSchedule", "nodes": "n0, n1"})],
    ),
    (
        "a taint that is tolerated already is no obstacle",
        missing(tolerations=(Toleration("spot", "Exists", "", ""),)),
        [make_node("n0", taints=(SPOT,)), shut("n1")],
        {"n0": 0, "n1": 8},
        [],
        [("uncordon_nodes", {"nodes": "n1"})],
    ),
    (
        "what the node controller sets is not to be tolerated",
        missing(),
        [make_node("n0", taints=(LOST,))],
        {"n0": 8},
        [],
        [("add_nodes", {"nodes": 1, "accelerators": 8, "resource": GPU})],
    ),
    (
        "a node selector that names too few nodes",
        missing(node_selector=A100),
        [make_node("n0", labels=A100), make_node("n1", labels={"accelerator": "h100"})],
        {"n1": 8},
        [],
        [("relax_selector", {"selector": "accelerator=a100", "nodes": "n1"})],
    ),
    (
        "one key of an affinity",
        missing(
            affinity=(
                (Requirement("zone", "In", ("a", "b")), Requirement("accelerator", "Exists")),
            )
        ),
        [make_node("n0", labels={"zone": "c", **A100}), make_node("n1", labels={"zone": "a"})],
        {"n0": 8},
        [],
        [("relax_selector", {"selector": "zone In (a, b)", "nodes": "n0"})],
    ),
    (
        "the term of an affinity that is nearest",
        missing(
            affinity=(
                (Requirement("zone", "In", ("a",)), Requirement("disk", "Exists")),
                (Requirement("accelerator", "In", ("h100",)),),
            )
        ),
        [make_node("n0", labels={"zone": "c", **A100})],
        {"n0": 8},
        [],
        [("relax_selector", {"selector": "accelerator In (h100)", "nodes": "n0"})],
    ),
    (
        "quota alone",
        missing(2, quota_missing=16),
        [make_node("n0"), make_node("n1")],
        {"n0": 8, "n1": 8},
        [],
        [("raise_quota", {"accelerators": 16, "resource": GPU, "queue": "q"})],
    ),
    (
        "quota, where what it takes back makes the room",
        missing(1, quota_missing=8, reclaim=ELASTIC),
        [make_node("n0")],
        {},
        [gives("low", 10, n0=8)],
        [("raise_quota", {"accelerators": 8, "resource": GPU, "queue": "q"})],
    ),
    (
        "quota and room",
        missing(1, quota_missing=8),
        [shut("n0")],
        {"n0": 8},
        [],
        [
            ("raise_quota", {"accelerators": 8, "resource": GPU, "queue": "q"}),
            ("uncordon_nodes", {"nodes": "n0"}),
        ],
    ),
    (
        "quota and nodes",
        missing(3, quota_missing=8),
        [make_node("n0", 16)],
        {},
        [],
        [
            ("raise_quota", {"accelerators": 8, "resource": GPU, "queue": "q"}),
            ("add_nodes", {"nodes": 2, "accelerators": 16, "resource": GPU}),
        ],
    ),
    (
        "a smaller start, as far as there is room",
        missing(8, pods_together=8, minimum=4, pods_per_replica=2, could_start_with=3),
        [make_node("n0"), make_node("n1"), make_node("n2"), make_node("n3"), make_node("n4")],
        {f"n{i}": 8 for i in range(5)},
        [],
        [("lower_minimum", {"min": 2})],
    ),
    (
        "the lowest priority above which enough is given",
        missing(2, reclaim=ELASTIC),
        [make_node("n0"), make_node("n1"), make_node("n2")],
        {},
        [
            gives("low", 50, n0=4),
            gives("a", 100, n0=4),
            gives("b", 200, n1=8),
            gives("c", 300, n2=8),
        ],
        [("raise_priority", {"priority": 200, "donors": "Job/ml/low, Job/ml/a, Job/ml/b"})],
    ),
    (
        "donors that can be spared aren't named",
        missing(1, reclaim=ELASTIC),
        [make_node("n0")],
        {"n0": 4},
        [gives("a", 100, n0=4), gives("b", 100, n0=2), gives("c", 100, n0=2)],
        [("raise_priority", {"priority": 100, "donors": "Job/ml/a"})],
    ),
    (
        "a class that takes nothing back",
        missing(reclaim=NEVER),
        [make_node("n0")],
        {},
        [gives("low", 10, n0=8)],
        [("allow_reclaim", {"policy": "ReclaimElastic", "donors": "Job/ml/low"})],
    ),
    (
        "a class that takes whole jobs",
        missing(reclaim=ELASTIC),
        [make_node("n0")],
        {},
        [gives("low", 10, whole=4, n0=4)],
        [("allow_reclaim", {"policy": "PreemptWhole", "donors": "Job/ml/low"})],
    ),
    (
        "a toleration, where it then takes back by itself",
        missing(reclaim=ELASTIC),
        [make_node("n0", taints=(SPOT,))],
        {},
        [gives("low", 10, n0=8)],
        [("tolerate_taint", {"taint": "spot=true:NoSchedule", "nodes": "n0"})],
    ),
    (
        "nodes, as large as the pods need",
        missing(3, gpus=2),
        [make_node("n0", 8)],
        {"n0": 1},
        [],
        [("add_nodes", {"nodes": 1, "accelerators": 6, "resource": GPU})],
    ),
    (
        "nodes of a size that there isn't yet",
        missing(2, gpus=16),
        [make_node("n0", 8)],
        {"n0": 8},
        [],
        [("add_nodes", {"nodes": 2, "accelerators": 16, "resource": GPU})],
    ),
    (
        "two changes on the one node that will do",
        missing(node_selector={"kubernetes.io/hostname": "n0"}),
        [shut("n0", labels={"kubernetes.io/hostname": "n0"}), make_node("n1")],
        {"n0": 0, "n1": 0},
        [],
        [("nothing_found", {"accelerators": 8, "resource": GPU})],
    ),
    (
        "a pair: uncordon and tolerate",
        missing(node_selector={"kubernetes.io/hostname": "n0"}),
        [
            make_node(
                "n0",
                unschedulable=True,
                taints=(CORDONED, TEAM),
                labels={"kubernetes.io/hostname": "n0"},
            )
        ],
        {"n0": 8},
        [],
        [
            ("uncordon_nodes", {"nodes": "n0"}),
            ("tolerate_taint", {"taint": "team=vision:NoExecute", "nodes": "n0"}),
        ],
    ),
    (
        "a pair: tolerate, and take back",
        missing(node_selector={"kubernetes.io/hostname": "n0"}),
        [make_node("n0", taints=(TEAM,), labels={"kubernetes.io/hostname": "n0"})],
        {"n0": 0},
        [gives("low", 10, n0=8)],
        [
            ("tolerate_taint", {"taint": "team=vision:NoExecute", "nodes": "n0"}),
            ("allow_reclaim", {"policy": "ReclaimElastic", "donors": "Job/ml/low"}),
        ],
    ),
    (
        "a gang needs all of its places",
        missing(4, pods_together=4, placed=0),
        [make_node("n0"), make_node("n1"), make_node("n2"), shut("n3"), shut("n4")],
        {"n0": 8, "n1": 8, "n2": 8, "n3": 8, "n4": 8},
        [],
        [("uncordon_nodes", {"nodes": "n3"})],
    ),
    (
        "in one rack",
        missing(2, pods_together=2, level="rack"),
        [
            make_node("n0", labels={"rack": "a"}),
            shut("n1", labels={"rack": "a"}),
            make_node("n2", labels={"rack": "b"}),
            shut("n3"),
        ],
        {"n0": 8, "n1": 8, "n2": 8, "n3": 8},
        [],
        [("uncordon_nodes", {"nodes": "n1"})],
    ),
    (
        "in the rack that it is in",
        missing(1, level="rack", domain="b"),
        [shut("n1", labels={"rack": "a"}), make_node("n2", labels={"rack": "b"})],
        {"n1": 8},
        [],
        [("add_nodes", {"nodes": 1, "accelerators": 8, "resource": GPU})],
    ),
    (
        "no nodes at all",
        missing(2),
        [],
        {},
        [],
        [("add_nodes", {"nodes": 2, "accelerators": 8, "resource": GPU})],
    ),
]


@pytest.mark.parametrize(("name", "want", "nodes", "free", "surplus", "answer"), CASES)
def test_unblock(
    name: str,
    want: Missing,
    nodes: list[Node],
    free: dict[str, int],
    surplus: list[Surplus],
    answer: list[Any],
) -> None:
    assert answers(want, nodes, free, *surplus) == answer


def test_nodes_that_get_nothing_new_are_no_help() -> None:
    found = answers(missing(), [make_node("n0")], {"n0": 8}, closed=("n0",))
    assert [code for code, _ in found] == ["add_nodes"]


def test_many_names_are_counted() -> None:
    nodes = [shut(f"n{i:02}") for i in range(30)]
    [(code, numbers)] = answers(missing(12), nodes, {node.name: 8 for node in nodes})
    assert code == "uncordon_nodes"
    assert numbers["nodes"] == "n00, n01, n02, n03, n04, n05, n06, n07 and 4 more"


def test_room_for_accelerators_without_memory_is_no_room() -> None:
    shape = PodShape((("memory", 2**40), (GPU, 8)))
    want = dataclasses.replace(missing(), shape=shape)
    node = make_node("n0", unschedulable=True)
    remedies = Remedies.of(make_snapshot([node]), {"n0": {GPU: 8, "memory": 2**30}}, ())
    assert [str(reason.code) for reason in remedies.for_(want)] == ["add_nodes"]


# -- applied, it is enough ---------------------------------------------------------------------

LABELS = st.fixed_dictionaries({}, optional={"zone": st.sampled_from("ab"), "disk": st.just("ssd")})
NODES = st.lists(
    st.tuples(
        st.sampled_from([0, 4, 8]),
        st.booleans(),
        st.booleans(),
        st.lists(st.sampled_from([SPOT, TEAM]), unique=True, max_size=2),
        LABELS,
    ),
    max_size=6,
)
DONORS = st.lists(
    st.tuples(
        st.sampled_from([50, 100, 200]),
        st.integers(0, 5),
        st.sampled_from([2, 4]),
        st.sampled_from([0, 4]),
    ),
    max_size=4,
)
WANTS = st.builds(
    missing,
    pods=st.integers(1, 4),
    gpus=st.sampled_from([2, 4, 8]),
    reclaim=st.sampled_from([NEVER, ELASTIC, WHOLE]),
    quota_missing=st.sampled_from([0, 8]),
    node_selector=LABELS,
    level=st.sampled_from(["", "zone"]),
)


@settings(deadline=None, max_examples=400)
@given(WANTS, NODES, DONORS)
def test_what_is_said_to_help_is_enough(want: Missing, kinds: list[Any], gifts: list[Any]) -> None:
    nodes = [
        make_node(f"n{i}", unschedulable=cordoned, ready=ready, taints=tuple(taints), labels=labels)
        for i, (_, cordoned, ready, taints, labels) in enumerate(kinds)
    ]
    free = {f"n{i}": kind[0] for i, kind in enumerate(kinds)}
    surplus = [
        gives(f"d{i}", priority, whole=whole, **{f"n{at}": n})
        for i, (priority, at, n, whole) in enumerate(gifts)
        if at < len(nodes)
    ]
    amounts = {name: {GPU: n, **ROOMY} for name, n in free.items()}
    reasons = Remedies.of(make_snapshot(nodes), amounts, surplus).for_(want)
    codes = {reason.code for reason in reasons}
    if ReasonCode.NOTHING_FOUND in codes:
        assert len(reasons) == 1
        return
    assert (ReasonCode.RAISE_QUOTA in codes) == bool(want.quota_missing)
    after = Applied(want, nodes, dict(free), surplus)
    for reason in reasons:
        after.apply(reason)
    assert after.fits()
    if ReasonCode.ADD_NODES in codes:  # nothing cheaper would have been enough
        for reason in after.cheaper():
            lesser = Applied(want, nodes, dict(free), surplus)
            lesser.apply(reason)
            assert not lesser.fits_free()


class Applied:
    """A naive model: nodes, what is free on them, and a demand, changed as a remedy says."""

    def __init__(
        self, want: Missing, nodes: Sequence[Node], free: dict[str, int], surplus: list[Surplus]
    ) -> None:
        self.want, self.nodes, self.free, self.surplus = want, list(nodes), free, surplus
        self.shape = want.shape
        self.priority, self.policy = want.priority, want.reclaim
        self.donors: set[str] | None = None

    def apply(self, reason: Reason) -> None:
        numbers: Any = reason.numbers
        if reason.code is ReasonCode.UNCORDON_NODES:
            names = numbers["nodes"].split(", ")
            self.nodes = [
                dataclasses.replace(n, unschedulable=n.unschedulable and n.name not in names)
                for n in self.nodes
            ]
        elif reason.code is ReasonCode.TOLERATE_TAINT:
            key = numbers["taint"].split("=")[0]
            tolerations = (*self.shape.tolerations, Toleration(key, "Exists", "", ""))
            self.shape = dataclasses.replace(self.shape, tolerations=tolerations)
        elif reason.code is ReasonCode.RELAX_SELECTOR:
            dropped = tuple(numbers["selector"].split("="))
            kept = tuple(pair for pair in self.shape.node_selector if pair != dropped)
            self.shape = dataclasses.replace(self.shape, node_selector=kept)
        elif reason.code is ReasonCode.RAISE_PRIORITY:
            self.priority = numbers["priority"] + 1
            self.donors = set(numbers["donors"].split(", "))
        elif reason.code is ReasonCode.ALLOW_RECLAIM:
            self.policy = ReclaimPolicy(numbers["policy"])
            self.donors = set(numbers["donors"].split(", "))
        elif reason.code is ReasonCode.ADD_NODES:
            labels = {"zone": self._best_zone(), **dict(self.shape.node_selector)}
            for i in range(numbers["nodes"]):
                self.nodes.append(make_node(f"new{i}", labels=labels))
                self.free[f"new{i}"] = numbers["accelerators"]

    def cheaper(self) -> Iterable[Reason]:
        numbers: Mapping[str, Any]
        for code, numbers in (
            (ReasonCode.UNCORDON_NODES, {"nodes": ", ".join(node.name for node in self.nodes)}),
            (ReasonCode.TOLERATE_TAINT, {"taint": "spot=true:NoSchedule"}),
            (ReasonCode.TOLERATE_TAINT, {"taint": "team=vision:NoExecute"}),
            *(
                (ReasonCode.RELAX_SELECTOR, {"selector": f"{key}={value}"})
                for key, value in self.want.shape.node_selector
            ),
        ):
            yield Reason(code, "", numbers)

    def fits(self) -> bool:
        return self.fits_free() or max(self._rooms(self._given()).values()) >= self.want.lacking

    def fits_free(self) -> bool:
        return max(self._rooms({}).values()) >= self.want.lacking

    def _best_zone(self) -> str:
        pinned = dict(self.shape.node_selector).get("zone")
        rooms = self._rooms(self._given())
        return pinned or max("ab", key=lambda zone: rooms.get(zone, 0))

    def _given(self) -> dict[str, int]:
        given: dict[str, int] = {}
        for job in self.surplus:
            named = self.donors is None or job.workload in self.donors
            if self.policy is NEVER or job.priority >= self.priority or not named:
                continue
            amounts = job.whole if self.policy is WHOLE else job.above_minimum
            for node, resources in amounts.items():
                given[node] = given.get(node, 0) + resources[GPU]
        return given

    def _rooms(self, given: Mapping[str, int]) -> dict[str, int]:
        """Pods that find nodes, by zone where they must lie in one."""
        (_, n), *_ = self.shape.accelerators
        rooms = {"": 0}
        for node in self.nodes:
            if not accepts(node, self.shape) or (self.want.level and "zone" not in node.labels):
                continue
            zone = node.labels["zone"] if self.want.level else ""
            room = (self.free[node.name] + given.get(node.name, 0)) // n
            rooms[zone] = rooms.get(zone, 0) + room
        return rooms


def test_a_snapshot_of_ten_thousand_nodes_is_asked_quickly() -> None:
    """No node is looked at one by one for a demand: what it costs is what numpy does."""
    calls = 0

    class Counted(dict[str, Mapping[str, int]]):
        def get(self, *args: Any) -> Any:
            nonlocal calls
            calls += 1
            return super().get(*args)

    nodes = [make_node(f"n{i:05}") for i in range(2000)]
    snapshot: ClusterSnapshot = make_snapshot(nodes)
    remedies = Remedies.of(snapshot, Counted({node.name: {GPU: 0} for node in nodes}), ())
    remedies.for_(missing(4))
    first = calls
    remedies.for_(missing(4, gpus=4, priority=7))
    assert (first, calls) == (2000, 2000)
