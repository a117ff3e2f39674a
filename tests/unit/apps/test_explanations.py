"""What a plan explains is kept whole: candidates, remedies, reservations, notices, suspensions."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.clusters.models import Cluster
from apps.decisions import actions, events, selectors
from apps.decisions.choices import CommandState
from apps.decisions.models import Command, Decision, Plan
from controlplane.engine import decisions as engine
from controlplane.engine.accounting import Accounting
from controlplane.engine.commands import Command as EngineCommand
from controlplane.engine.commands import CommandKind
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.snapshot import DemandHistory
from controlplane.engine.types import WorkloadKey
from tests.rows import GPU, make_cluster, make_command, make_decision, make_job

pytestmark = pytest.mark.django_db

NOW = 1_796_083_200.0
KEY = WorkloadKey("Job", "ml", "llama")
LOST = engine.Rejection("Job/ml/bert", because(ReasonCode.AT_MINIMUM, min=2))
UNCORDON = because(ReasonCode.UNCORDON_NODES, nodes="n7")
LATE = because(ReasonCode.HANGS_TERMINATING, late_s=600, accelerators=8, resource=GPU, node="n3")
LATE_JSON = {
    "code": "hangs_terminating",
    "sentence": "Should have gone 600 s ago and still holds 8 nvidia.com/gpu on n3. Look at the "
    "node and the pod's finalizers; delete it by force only if its node is gone.",
    "numbers": {"late_s": 600, "accelerators": 8, "resource": GPU, "node": "n3"},
}
LOST_JSON = {
    "candidate": "Job/ml/bert",
    "code": "at_minimum",
    "sentence": "Is at its minimum of 2 replicas.",
    "numbers": {"min": 2},
}
UNCORDON_JSON = {
    "code": "uncordon_nodes",
    "sentence": "Uncordon n7.",
    "numbers": {"nodes": "n7"},
}


def waits(name: str = "Deployment/serve/chat", **fields: Any) -> engine.PendingDemand:
    values: dict[str, Any] = {
        "workload_or_pod": name,
        "priority": 1000,
        "pods": 3,
        "requests": {GPU: 8},
        "since": NOW - 30,
        "reason": because(ReasonCode.FITS),
        **fields,
    }
    return engine.PendingDemand(**values)


def stays(**fields: Any) -> engine.Decision:
    return engine.Decision(KEY, 4, 4, because(ReasonCode.AT_MAXIMUM, to=4), **fields)


def make(*decisions: engine.Decision, at: float = NOW, **fields: Any) -> engine.Plan:
    values: dict[str, Any] = {
        "digest": "d" * 64,
        "commands": (),
        "pending": (),
        "accounting": Accounting(),
        "next_wake": None,
        **fields,
    }
    return engine.Plan(now=at, decisions=decisions, **values)


def record(plan: engine.Plan) -> list[Command]:
    return actions.record_plan(Cluster.objects.get(), plan, epoch=1)


def shown(**query: Any) -> dict[str, Any]:
    return selectors.pending(Cluster.objects.get(), datetime.fromtimestamp(NOW, UTC), **query)


def test_a_decision_keeps_its_share_its_gain_and_what_would_help() -> None:
    make_job()
    record(make(stays(share=6, expected_gain=0.25, unblock=(UNCORDON,))))
    decision = Decision.objects.get()
    assert (decision.share, decision.expected_gain) == (6, 0.25)
    assert decision.unblock == [UNCORDON_JSON]


def test_what_was_not_reckoned_is_absent() -> None:
    make_job()
    record(make(stays()))
    decision = Decision.objects.get()
    assert (decision.share, decision.expected_gain, decision.unblock) == (None, None, [])


def test_an_explanation_that_many_share_is_kept_once() -> None:
    make_cluster()
    many = [waits(f"Pod/ml/p{i}", rejected=(LOST,), unblock=(UNCORDON,)) for i in range(500)]
    record(make(pending=(*many, waits("Pod/ml/other"))))
    plan = Plan.objects.get()
    assert plan.explanations == [{"rejected": [LOST_JSON], "unblock": [UNCORDON_JSON]}]
    assert {row.get("explanation") for row in plan.pending} == {0, None}
    items = shown()["items"]
    assert (items[499]["rejected"], items[499]["unblock"]) == ([LOST_JSON], [UNCORDON_JSON])
    assert items[499]["rejected_count"] == 1
    assert (items[500]["rejected"], items[500]["unblock"]) == ([], [])
    brief = shown(rejected=False)["items"]
    assert (brief[0]["rejected"], brief[0]["rejected_count"]) == (None, 1)
    assert brief[0]["unblock"] == [UNCORDON_JSON]
    assert not {"explanation", "history"} & set(brief[0])


def test_a_plan_from_before_explanations_is_still_shown() -> None:
    cluster = make_cluster()
    record(make(pending=(waits(),)))
    Plan.objects.update(explanations=[])
    [item] = selectors.pending(cluster, datetime.fromtimestamp(NOW, UTC))["items"]
    assert (item["rejected"], item["rejected_count"], item["unblock"]) == ([], 0, [])


def test_reservations_and_notices_are_kept() -> None:
    cluster = make_cluster()
    kept = engine.Reservation("Job/ml/big", 500, {"n1": {GPU: 8}, "n2": {GPU: 4}})
    record(make(reservations=(kept,), notices=(engine.Notice("Pod/ml/old-0", LATE),)))
    assert shown()["reservations"] == [
        {"demand": "Job/ml/big", "priority": 500, "nodes": {"n1": {GPU: 8}, "n2": {GPU: 4}}}
    ]
    found = selectors.notices(cluster, datetime.fromtimestamp(NOW + 3, UTC))
    assert found["items"] == [{"subject": "Pod/ml/old-0", **LATE_JSON}]
    assert found["age_s"] == 3


NOTICE = engine.Notice("Pod/ml/old-0", LATE)
LATER = engine.Notice(
    "Pod/ml/old-0",
    because(ReasonCode.HANGS_TERMINATING, late_s=605, accelerators=8, resource=GPU, node="n3"),
)
RESERVED = engine.Reservation("Job/ml/big", 500, {"n1": {GPU: 8}})
MORE = engine.Reservation("Job/ml/big", 500, {"n1": {GPU: 8}, "n2": {GPU: 8}})
SECOND: list[tuple[str, dict[str, Any], int]] = [
    # name, the second plan, plans then
    ("the same", {"notices": (NOTICE,), "reservations": (RESERVED,)}, 1),
    ("a number of a notice moved", {"notices": (LATER,), "reservations": (RESERVED,)}, 1),
    ("more is reserved", {"notices": (NOTICE,), "reservations": (MORE,)}, 1),
    ("the notice is gone", {"reservations": (RESERVED,)}, 2),
    ("the reservation is gone", {"notices": (NOTICE,)}, 2),
]


@pytest.mark.parametrize(("name", "second", "plans"), SECOND)
def test_which_pictures_are_news(name: str, second: dict[str, Any], plans: int) -> None:
    make_cluster()
    record(make(notices=(NOTICE,), reservations=(RESERVED,)))
    record(make(at=NOW + 5, **second))
    assert Plan.objects.count() == plans
    newest = Plan.objects.order_by("-number").first()
    assert newest is not None
    wanted = second.get("notices", ())
    assert [row["numbers"] for row in newest.notices] == [dict(n.reason.numbers) for n in wanted]
    nodes = [dict(kept.nodes) for kept in second.get("reservations", ())]
    assert [row["nodes"] for row in newest.reservations] == nodes


def test_what_the_next_cycle_must_know_of_a_demand() -> None:
    cluster = make_cluster()
    assert selectors.demand_histories(cluster) == {}
    minimum = waits("Job/ml/big", history=DemandHistory(NOW - 5, 1, NOW - 90))
    above = waits("Job/ml/big", history=DemandHistory(NOW - 9, 0, None))
    refused = waits("Pod/ml/p0", history=DemandHistory(None, 2, NOW - 60))
    record(make(pending=(waits(), minimum, above, refused)))
    assert selectors.demand_histories(cluster) == {
        "Job/ml/big": DemandHistory(NOW - 9, 1, NOW - 90),
        "Pod/ml/p0": DemandHistory(None, 2, NOW - 60),
    }


def suspend(**fields: Any) -> EngineCommand:
    values: dict[str, Any] = {
        "kind": CommandKind.SUSPEND,
        "workload": KEY,
        "from_replicas": 4,
        "to_replicas": 0,
        "victims": ("llama-3", "llama-2", "llama-1", "llama-0"),
        "precondition": "77",
        "reason": Reason(ReasonCode.PREEMPTED, "Is suspended.", {"from": 4}),
        "uid": "uid-llama",
        **fields,
    }
    return EngineCommand(**values)


def test_a_suspension_is_recorded_with_the_identity_of_what_it_stops() -> None:
    make_job()
    reason = Reason(ReasonCode.PREEMPTED, "Is suspended.", {"from": 4})
    [command] = record(make(engine.Decision(KEY, 4, 0, reason), commands=(suspend(),)))
    assert (command.kind, command.from_replicas, command.to_replicas) == ("suspend", 4, 0)
    assert (command.uid, command.precondition) == ("uid-llama", "77")


@pytest.mark.parametrize(("state", "issued"), [("applied", 1), ("applying", 0)])
def test_a_start_that_was_written_gives_way_to_a_suspension(state: str, issued: int) -> None:
    first = make_command(make_job(), kind="admit", from_replicas=4, to_replicas=4, state=state)
    reason = Reason(ReasonCode.PREEMPTED, "Is suspended.", {"from": 4})
    assert len(record(make(engine.Decision(KEY, 4, 0, reason), commands=(suspend(),)))) == issued
    first.refresh_from_db()
    assert first.state == (CommandState.SUPERSEDED if issued else state)


def test_an_event_stays_short_however_much_was_weighed() -> None:
    rejected = [{**LOST_JSON, "candidate": f"Job/ml/j{i}"} for i in range(400)]
    decision = make_decision(make_job(), rejected=rejected)
    kind, data = events.decision_event(decision)
    assert (kind, len(data["rejected"])) == ("decision", events.MOST_REJECTED)
    assert len(json.dumps(data, default=str)) < 4000


def why(cluster: Cluster, name: str) -> dict[str, Any] | None:
    return selectors.why_pending(cluster, name, datetime.fromtimestamp(NOW + 2, UTC))


def test_why_one_waits_and_why_another_has_no_more(
    django_assert_max_num_queries: Callable[..., Any],
) -> None:
    job = make_job()
    kept = engine.Reservation("Pod/ml/p0", 1000, {"n1": {GPU: 8}})
    demand = waits("Pod/ml/p0", rejected=(LOST,), unblock=(UNCORDON,))
    record(make(stays(), pending=(demand, waits("Pod/ml/p1")), reservations=(kept,)))
    with django_assert_max_num_queries(3):
        found = why(job.cluster, "Pod/ml/p0")
    assert found is not None
    assert (found["waits"], found["decision"], found["age_s"]) == (True, None, 2)
    [item] = found["items"]
    assert (item["rejected"], item["unblock"]) == ([LOST_JSON], [UNCORDON_JSON])
    assert [row["demand"] for row in found["reservations"]] == ["Pod/ml/p0"]
    runs = why(job.cluster, "Job/ml/llama")
    assert runs is not None
    assert (runs["waits"], runs["items"], runs["reservations"]) == (False, [], [])
    assert runs["decision"].reason_code == "at_maximum"
    assert why(job.cluster, "Pod/ml/p9") is None
