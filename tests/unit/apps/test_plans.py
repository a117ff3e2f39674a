"""What a plan leaves in the record: news, commands, and nothing twice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apps.clusters.models import Cluster
from apps.decisions import actions
from apps.decisions.choices import CommandState
from apps.decisions.models import Command, Decision, Plan
from apps.training.models import TrainingJob
from controlplane.engine import decisions as engine
from controlplane.engine.accounting import Accounting
from controlplane.engine.commands import Command as EngineCommand
from controlplane.engine.commands import CommandKind
from controlplane.engine.reasons import Reason, ReasonCode
from controlplane.engine.types import WorkloadKey
from tests.rows import make_cluster, make_command, make_job

pytestmark = pytest.mark.django_db

NOW = 1_796_083_200.0
KEY = WorkloadKey("Job", "ml", "llama")


def reason(code: str = "at_maximum", **numbers: Any) -> Reason:
    return Reason(ReasonCode(code), f"Because {code}.", numbers)


def decided(current: int = 4, desired: int = 4, **fields: Any) -> engine.Decision:
    values = {"workload": KEY, "reason": reason(), **fields}
    return engine.Decision(current=current, desired=desired, **values)


def resize(to: int = 2, **fields: Any) -> EngineCommand:
    values = {
        "kind": CommandKind.RESIZE,
        "workload": KEY,
        "from_replicas": 4,
        "to_replicas": to,
        "victims": ("llama-3", "llama-2"),
        "precondition": "77",
        "reason": reason("shrinks_for_priority"),
        **fields,
    }
    return EngineCommand(**values)


def waits(code: str = "no_capacity", **fields: Any) -> engine.PendingDemand:
    values = {
        "workload_or_pod": "Deployment/serve/chat",
        "priority": 1000,
        "pods": 3,
        "requests": {"nvidia.com/gpu": 8},
        "since": NOW - 30,
        "reason": reason(code, missing=16),
        **fields,
    }
    return engine.PendingDemand(**values)


def make(*decisions: engine.Decision, at: float = NOW, **fields: Any) -> engine.Plan:
    values = {
        "digest": "d" * 64,
        "commands": (),
        "pending": (),
        "accounting": Accounting(),
        "next_wake": None,
        **fields,
    }
    return engine.Plan(now=at, decisions=decisions, **values)


def record(plan: engine.Plan, **fields: Any) -> list[Command]:
    return actions.record_plan(Cluster.objects.get(), plan, **{"epoch": 1, **fields})


def test_a_plan_with_a_command() -> None:
    job = make_job()
    lost = engine.Rejection("Job/ml/bert", reason("at_minimum", minimum=1))
    [command] = record(
        make(decided(4, 2, reason=reason("shrinks_for_priority", by=2), rejected=(lost,)),
             commands=(resize(),), pending=(waits(),)),
        inputs={"snapshot": {}}, snapshot_at=datetime.fromtimestamp(NOW, UTC), duration_ms=12.5,
    )  # fmt: skip
    plan = Plan.objects.get()
    assert (plan.number, plan.digest, plan.lease_epoch) == (1, "d" * 64, 1)
    assert (plan.inputs, plan.duration_ms) == ({"snapshot": {}}, 12.5)
    assert plan.planned_at.timestamp() == NOW
    assert plan.pending == [
        {
            "workload": "Deployment/serve/chat",
            "priority": 1000,
            "pods": 3,
            "requests": {"nvidia.com/gpu": 8},
            "since": "2026-11-30T23:59:30Z",
            "reason": {
                "code": "no_capacity",
                "sentence": "Because no_capacity.",
                "numbers": {"missing": 16},
            },
        }
    ]
    decision = Decision.objects.get()
    assert (decision.job, decision.current, decision.desired) == (job, 4, 2)
    assert (decision.reason_code, decision.numbers) == ("shrinks_for_priority", {"by": 2})
    assert decision.rejected == [
        {
            "candidate": "Job/ml/bert",
            "code": "at_minimum",
            "sentence": "Because at_minimum.",
            "numbers": {"minimum": 1},
        }
    ]
    assert command.decision == decision
    assert (command.state, command.epoch, command.precondition) == ("pending", 1, "77")
    assert command.victims == ["llama-3", "llama-2"]
    assert TrainingJob.objects.get().desired == 2


def test_inputs_are_kept_only_with_commands() -> None:
    make_job()
    record(make(decided()), inputs={"snapshot": {}})
    assert Plan.objects.get().inputs is None


SECOND: list[tuple[str, engine.Plan, int, int]] = [
    # name, the second plan, plans then, decisions then
    ("the same again", make(decided(), at=NOW + 5), 1, 1),
    (
        "only a number moved",
        make(decided(reason=reason("at_maximum", free=3)), at=NOW + 5),
        1,
        1,
    ),
    ("another reason", make(decided(reason=reason("no_room")), at=NOW + 5), 2, 2),
    ("another size", make(decided(4, 5), at=NOW + 5), 2, 2),
    ("new demand", make(decided(), at=NOW + 5, pending=(waits(),)), 2, 1),
    ("a command", make(decided(4, 4), at=NOW + 5, commands=(resize(),)), 2, 2),
]


@pytest.mark.parametrize(("name", "second", "plans", "decisions"), SECOND)
def test_only_news_is_recorded(name: str, second: engine.Plan, plans: int, decisions: int) -> None:
    make_job()
    record(make(decided()))
    record(second)
    assert (Plan.objects.count(), Decision.objects.count()) == (plans, decisions)
    newest = Plan.objects.order_by("-number").first()
    assert newest is not None
    assert newest.last_seen_at.timestamp() == NOW + 5


def test_demand_that_waits_longer_is_the_same_demand() -> None:
    make_job()
    record(make(decided(), pending=(waits(),)))
    record(make(decided(), at=NOW + 5, pending=(waits(since=NOW - 29),)))
    assert Plan.objects.count() == 1
    assert Plan.objects.get().pending[0]["since"] == "2026-11-30T23:59:31Z"


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_plan_of_another_epoch_leaves_nothing(epoch: int) -> None:
    job = make_job(desired=4)
    with pytest.raises(actions.StaleEpoch, match=f"epoch {epoch}.*the lease is at epoch 1"):
        record(make(decided(4, 2), commands=(resize(),)), epoch=epoch)
    assert not Plan.objects.exists()
    assert not Command.objects.exists()
    job.refresh_from_db()
    assert job.desired == 4


@pytest.mark.parametrize(
    ("state", "issued", "older"),
    [
        (CommandState.PENDING, 1, CommandState.SUPERSEDED),
        (CommandState.APPLYING, 0, CommandState.APPLYING),
        (CommandState.APPLIED, 0, CommandState.APPLIED),
        (CommandState.DONE, 1, CommandState.DONE),
    ],
)
def test_never_two_commands_under_way(
    state: CommandState, issued: int, older: CommandState
) -> None:
    first = make_command(make_job(), state=state)
    assert len(record(make(decided(4, 2), commands=(resize(),)))) == issued
    first.refresh_from_db()
    assert first.state == older
    assert Command.objects.filter(finished_at=None).count() <= 1


@pytest.mark.parametrize(("ago", "to", "issued"), [(5, 2, 0), (29, 2, 0), (31, 2, 1), (5, 3, 1)])
def test_a_command_that_the_cluster_refused_waits_before_it_is_given_again(
    ago: int, to: int, issued: int
) -> None:
    ended = datetime.fromtimestamp(NOW - ago, UTC)
    make_command(make_job(), state=CommandState.FAILED, to_replicas=2, finished_at=ended)
    assert len(record(make(decided(4, to), commands=(resize(to),)))) == issued


def test_what_the_engine_wants_to_know_again() -> None:
    make_job()
    record(make(decided(growth_wanted_since=NOW - 10, short_since=NOW - 5)))
    job = TrainingJob.objects.get()
    assert job.growth_wanted_since is not None
    assert job.growth_wanted_since.timestamp() == NOW - 10
    assert job.short_since is not None
    record(make(decided(), at=NOW + 1))
    job.refresh_from_db()
    assert (job.growth_wanted_since, job.short_since) == (None, None)


def test_a_decision_about_a_job_that_is_not_in_the_record_is_left_out() -> None:
    make_cluster()
    assert record(make(decided(4, 2), commands=(resize(),))) == []
    assert not Decision.objects.exists()
