"""Admin pages: validation on the right fields, history, and what is only to be looked at."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from apps.core.models import AuditEntry
from apps.elasticity.models import ElasticityPolicy
from apps.priorities.models import PriorityClass
from tests.rows import make_class, make_cluster, make_command, make_job, make_policy_row, make_user

pytestmark = pytest.mark.django_db

POLICY = {
    "name": "steady", "description": "", "min_replicas": 1, "max_replicas": 4,
    "replica_increment_step": "", "replica_discrete_values": "null", "schedule": "[]",
    "scaling_timeout": 60, "cooldown": 60, "scale_up_snooze": 60, "fault_scale_down_timeout": 300,
    "graceful_shutdown_timeout": 60, "min_gain": 0, "restart_budget": "",
    "batch_policy": "preserve", "lr_rule": "none",
}  # fmt: skip


@pytest.fixture
def staff() -> Client:
    user = make_user("root", staff=True)
    user.is_superuser = True
    user.save()
    client = Client()
    client.force_login(user)
    return client


def url(model: str, page: str) -> str:
    return f"/admin/{model}/{page}"


def test_a_policy_is_made_and_changed_with_its_history(staff: Client) -> None:
    made = staff.post(url("elasticity/elasticitypolicy", "add/"), POLICY)
    assert made.status_code == 302
    row = ElasticityPolicy.objects.get()
    page = url("elasticity/elasticitypolicy", f"{row.pk}/change/")
    assert staff.post(page, {**POLICY, "max_replicas": 8}).status_code == 302
    assert ElasticityPolicy.objects.get().max_replicas == 8
    assert list(AuditEntry.objects.order_by("id").values_list("verb", "actor_name")) == [
        ("create", "root"),
        ("change", "root"),
    ]
    assert "max_replicas: 4 → 8" in staff.get(page).content.decode()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"min_replicas": 9}, "max_replicas"),
        ({"min_replicas": 0}, "min_replicas"),
        ({"min_replicas": ""}, "min_replicas"),
        ({"cooldown": -1}, "cooldown"),
        ({"replica_discrete_values": "[2, 4]"}, "replica_discrete_values"),
        ({"replica_discrete_values": "7"}, "replica_discrete_values"),
        ({"replica_discrete_values": "[1"}, "replica_discrete_values"),
        ({"lr_rule": "sqrt"}, "lr_rule"),
        ({"schedule": '["nights"]'}, "schedule"),
        ({"name": "taken"}, "name"),
    ],
)
def test_a_policy_is_refused_on_its_field(
    staff: Client, fields: dict[str, Any], field: str
) -> None:
    make_policy_row("taken")
    page = staff.post(url("elasticity/elasticitypolicy", "add/"), {**POLICY, **fields})
    assert page.status_code == 200
    assert list(page.context["adminform"].form.errors) == [field]
    assert ElasticityPolicy.objects.count() == 1
    assert not AuditEntry.objects.exists()


def test_a_policy_in_use_is_neither_renamed_nor_deleted(staff: Client) -> None:
    row = make_policy_row("steady")
    make_job(policy=row)
    page = url("elasticity/elasticitypolicy", f"{row.pk}/")
    renamed = staff.post(f"{page}change/", {**POLICY, "name": "other"})
    assert "can&#x27;t be renamed" in renamed.content.decode()
    deleted = staff.post(f"{page}delete/", {"post": "yes"}, follow=True)
    assert "can&#x27;t be deleted" in deleted.content.decode()
    assert ElasticityPolicy.objects.get().name == "steady"


def test_priority_classes(staff: Client) -> None:
    given = {"name": "batch", "value": 10, "preemption_policy": "Never", "description": ""}
    add = url("priorities/priorityclass", "add/")
    high = staff.post(add, {**given, "value": 1_000_000_001})
    assert list(high.context["adminform"].form.errors) == ["value"]
    assert staff.post(add, given).status_code == 302
    row = PriorityClass.objects.get()
    gone = staff.post(url("priorities/priorityclass", f"{row.pk}/delete/"), {"post": "yes"})
    assert gone.status_code == 302
    assert [e.verb for e in AuditEntry.objects.order_by("id")] == ["create", "delete"]
    foreign = make_class(source="cluster")
    page = url("priorities/priorityclass", f"{foreign.pk}/change/")
    assert staff.post(page, {**given, "value": 1}).status_code == 403


def test_a_cluster_is_added(staff: Client) -> None:
    add = url("clusters/cluster", "add/")
    given = {"name": "west", "kubeconfig_path": "", "context": ""}
    refused = staff.post(add, given)
    assert "Give the path of a kubeconfig" in refused.content.decode()
    assert staff.post(add, {**given, "kubeconfig_path": "/etc/kube"}).status_code == 302
    assert AuditEntry.objects.get().verb == "create"


PAGES = sorted(
    f"{model._meta.app_label}/{model._meta.model_name}" for model in admin.site._registry
)


@pytest.mark.parametrize("model", PAGES)
def test_every_list_opens(staff: Client, model: str) -> None:
    make_command(make_job(make_cluster(), policy=make_policy_row()))
    assert staff.get(url(model, "")).status_code == 200


@pytest.mark.parametrize(
    "model",
    [
        "training/trainingjob",
        "decisions/plan",
        "decisions/decision",
        "decisions/command",
        "core/auditentry",
        "accounts/apitoken",
        "clusters/node",
    ],
)
def test_what_the_control_plane_writes_is_only_shown(staff: Client, model: str) -> None:
    assert staff.get(url(model, "add/")).status_code == 403


def test_others_dont_get_in() -> None:
    client = Client()
    client.force_login(make_user("ann"))
    assert client.get("/admin/").status_code == 302
