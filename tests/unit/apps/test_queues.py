"""Queues, cohorts and settings of the record as the engine reads them, and their admin pages."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.clusters.models import ClusterSettings
from apps.core.models import AuditEntry
from apps.priorities.choices import Objective, PreemptionPolicy
from apps.priorities.models import Cohort, Queue
from controlplane.engine import types
from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.policy import PolicySet
from controlplane.engine.queues import CohortPolicy, QueuePolicy, Quota
from tests.rows import GPU, make_class, make_cluster, make_cohort, make_policy_row, make_queue
from tests.rows import make_user as make_row_of_user
from workers.gather import load_policies

pytestmark = pytest.mark.django_db

NEURON = "aws.amazon.com/neuron"


def test_our_choices_are_the_engines() -> None:
    assert Objective.values == [str(o) for o in types.Objective]
    assert PreemptionPolicy.values == [str(p) for p in types.ReclaimPolicy]


def test_a_cluster_without_any_has_an_ordinary_policy_set() -> None:
    assert load_policies(make_cluster()) == PolicySet()


def test_policies_of_a_cluster() -> None:
    east, west = make_cluster(), make_cluster("west")
    make_queue(
        east,
        "research",
        {GPU: {"nominal": 16, "borrowing_limit": 8}, NEURON: {"nominal": 4, "lending_limit": 2}},
        cohort="all",
        weight=2.0,
        objective="throughput",
        reserve_after_s=600,
        share_floor=0.5,
        protect_nominal=True,
    )
    make_queue(east, "batch")
    make_queue(west, "research")
    make_cohort(east, "all", {GPU: 32})
    make_class("serving", preemption_policy="PreemptWhole")
    make_policy_row("steady")
    ClusterSettings.objects.create(
        cluster=east, topology_levels=["rack"], spares={GPU: 8}, max_disruption_ratio=0.5
    )
    found = load_policies(east)
    assert list(found.policies) == ["steady"]
    assert found.queues == {
        "batch": QueuePolicy("batch"),
        "research": QueuePolicy(
            "research",
            cohort="all",
            weight=2.0,
            objective=types.Objective.THROUGHPUT,
            quotas={GPU: Quota(16, 8), NEURON: Quota(4, None, 2)},
            reserve_after_s=600.0,
            share_floor=0.5,
            protect_nominal=True,
        ),
    }
    assert found.cohorts == {"all": CohortPolicy("all", {GPU: Quota(32)})}
    assert found.preemption == {"serving": types.ReclaimPolicy.PREEMPT_WHOLE}
    assert found.cluster == ClusterPolicy(
        topology_levels=("rack",), spares={GPU: 8}, max_disruption_ratio=0.5
    )
    assert load_policies(west).queues == {"research": QueuePolicy("research")}
    assert load_policies(west).cluster == ClusterPolicy()


# -- admin pages -----------------------------------------------------------------------------


@pytest.fixture
def staff() -> Client:
    user = make_row_of_user("root", staff=True)
    user.is_superuser = True
    user.save()
    client = Client()
    client.force_login(user)
    return client


def page_of(cluster_id: int, *quotas: dict[str, Any], there: int = 0, **fields: Any) -> dict:
    """What the form of a queue sends."""
    sent = {
        "cluster": cluster_id, "name": "research", "description": "", "cohort": "", "weight": "1",
        "objective": "fair_share", "reserve_after_s": "", "share_floor": "", **fields,
        "quotas-TOTAL_FORMS": len(quotas), "quotas-INITIAL_FORMS": there,
    }  # fmt: skip
    for i, quota in enumerate(quotas):
        sent.update({f"quotas-{i}-{name}": value for name, value in quota.items()})
    return sent


ADD = "/admin/priorities/queue/add/"


def test_a_queue_is_made_and_changed_with_its_quotas(staff: Client) -> None:
    cluster = make_cluster()
    quota = {"resource": GPU, "nominal": 8, "borrowing_limit": 4, "lending_limit": ""}
    assert staff.post(ADD, page_of(cluster.pk, quota)).status_code == 302
    row = Queue.objects.get()
    [made] = row.quotas.all()
    assert (made.resource, made.nominal, made.borrowing_limit, made.lending_limit) == (
        GPU, 8, 4, None,
    )  # fmt: skip
    page = f"/admin/priorities/queue/{row.pk}/change/"
    kept = {**quota, "id": made.pk, "queue": row.pk, "nominal": 16}
    other = {"resource": NEURON, "nominal": 2, "borrowing_limit": "", "lending_limit": 0}
    sent = page_of(cluster.pk, kept, other, there=1, weight="2.5")
    assert staff.post(page, sent).status_code == 302
    assert Queue.objects.get().weight == 2.5
    assert sorted(row.quotas.values_list("resource", "nominal")) == [(NEURON, 2), (GPU, 16)]
    entries = list(AuditEntry.objects.order_by("id"))
    assert [(entry.verb, entry.actor_name) for entry in entries] == [
        ("create", "root"),
        ("change", "root"),
    ]
    assert entries[1].after["quotas"][NEURON] == {
        "nominal": 2, "borrowing_limit": None, "lending_limit": 0,
    }  # fmt: skip
    shown = staff.get(page).content.decode()
    assert "weight: 1.0 → 2.5" in shown
    gone = {**kept, "id": row.quotas.get(resource=GPU).pk, "DELETE": "on"}
    assert staff.post(page, page_of(cluster.pk, gone, there=1)).status_code == 302
    assert not row.quotas.exists()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"weight": "0"}, "weight"),
        ({"weight": ""}, "weight"),
        ({"reserve_after_s": "-1"}, "reserve_after_s"),
        ({"share_floor": "2"}, "share_floor"),
        ({"objective": "luck"}, "objective"),
        ({"cohort": "No Name"}, "cohort"),
        ({"name": "taken"}, "name"),
    ],
)
def test_a_queue_is_refused_on_its_field(staff: Client, fields: dict[str, Any], field: str) -> None:
    cluster = make_cluster()
    make_queue(cluster, "taken")
    page = staff.post(ADD, page_of(cluster.pk, **fields))
    assert page.status_code == 200
    assert list(page.context["adminform"].form.errors) == [field]
    assert Queue.objects.count() == 1
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("quota", "field"),
    [
        ({"resource": "gpu", "nominal": 1}, "resource"),
        ({"resource": GPU, "nominal": -1}, "nominal"),
        ({"resource": GPU, "nominal": 1, "lending_limit": 2}, "lending_limit"),
    ],
)
def test_a_quota_is_refused_on_its_field(staff: Client, quota: dict[str, Any], field: str) -> None:
    page = staff.post(ADD, page_of(make_cluster().pk, quota))
    assert page.status_code == 200
    [formset] = page.context["inline_admin_formsets"]
    assert list(formset.formset.errors[0]) == [field]
    assert not Queue.objects.exists()


def test_a_cohort_page(staff: Client) -> None:
    cluster = make_cluster()
    sent = {
        "cluster": cluster.pk, "name": "all", "description": "", "quotas-TOTAL_FORMS": 1,
        "quotas-INITIAL_FORMS": 0, "quotas-0-resource": GPU, "quotas-0-nominal": 8,
    }  # fmt: skip
    assert staff.post("/admin/priorities/cohort/add/", sent).status_code == 302
    row = Cohort.objects.get()
    assert list(row.quotas.values_list("resource", "nominal")) == [(GPU, 8)]
    gone = staff.post(f"/admin/priorities/cohort/{row.pk}/delete/", {"post": "yes"})
    assert gone.status_code == 302
    assert [entry.verb for entry in AuditEntry.objects.order_by("id")] == ["create", "delete"]


SETTINGS = {
    "topology_levels": "[]", "spares": "{}", "reserves": "{}", "forecast_quantile": "",
    "forecast_horizon_s": 3600, "max_disruption_ratio": 1, "terminating_timeout_s": 300,
    "offender_faults": 3, "offender_window_s": 86400, "offender_rest_s": 14400,
    "departure_notice_s": 3600, "bind_timeout_s": 60,
}  # fmt: skip


def test_the_settings_page(staff: Client) -> None:
    add = "/admin/clusters/clustersettings/add/"
    sent = {"cluster": make_cluster().pk, **SETTINGS}
    for fields, field in (
        ({"spares": "[1]"}, "spares"),
        ({"spares": '{"gpu": 1}'}, "spares"),
        ({"topology_levels": '["a", "a"]'}, "topology_levels"),
        ({"forecast_quantile": 2}, "forecast_quantile"),
        ({"offender_faults": 0}, "offender_faults"),
        ({"bind_timeout_s": ""}, "bind_timeout_s"),
    ):
        page = staff.post(add, {**sent, **fields})
        assert list(page.context["adminform"].form.errors) == [field]
    assert staff.post(add, {**sent, "spares": '{"nvidia.com/gpu": 8}'}).status_code == 302
    row = ClusterSettings.objects.get()
    page = f"/admin/clusters/clustersettings/{row.pk}/"
    assert staff.post(f"{page}change/", SETTINGS).status_code == 302
    assert ClusterSettings.objects.get().spares == {}
    assert staff.post(f"{page}delete/", {"post": "yes"}).status_code == 302
    assert [entry.verb for entry in AuditEntry.objects.order_by("id")] == [
        "create", "change", "delete",
    ]  # fmt: skip
