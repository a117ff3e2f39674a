"""Injecting a fault: only in a sandbox, only with the permission; the signaller does the act."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.core.models import AuditEntry
from apps.training.models import TrainingJob
from tests.rows import make_cluster, make_job, make_replica

pytestmark = pytest.mark.django_db

Api = Callable[..., APIClient]
MAY = {"permissions": ["training.inject_fault"]}
sent: list[tuple[str, str, str, str]] = []


def signaller(cluster: Any, namespace: str, pod: str, signal: str) -> None:
    sent.append((cluster.name, namespace, pod, signal))


def broken(cluster: Any, namespace: str, pod: str, signal: str) -> None:
    raise ConnectionError("the sandbox doesn't answer")


@pytest.fixture(autouse=True)
def _signaller(settings: Any) -> None:
    sent.clear()
    settings.CONCERTINA_POD_SIGNALLER = f"{__name__}.signaller"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """import_string finds this module by its name, also under importlib mode."""
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())


def _this_module() -> Any:
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(globals())
    return module


def inject(client: APIClient, job: TrainingJob, index: Any = 1, **fields: Any) -> Any:
    given = {"replica_index": index, "signal": "KILL", **fields}
    return client.post(f"/api/v1/jobs/{job.pk}/inject-fault/", given)


def make_sandbox_job(**fields: Any) -> TrainingJob:
    cluster = make_cluster(sandbox=fields.pop("sandbox", True))
    job = make_job(cluster, **fields)
    make_replica(job, 0)
    make_replica(job, 1)
    ended = [{"name": "llama-2", "node": "", "phase": "failed", "ready": False}]
    make_replica(job, 2, phase="failed", ready=False, pods=ended)
    return job


def test_a_replica_is_killed(make_api: Api) -> None:
    job = make_sandbox_job()
    response = inject(make_api("ann", **MAY), job)
    assert response.status_code == 200
    assert response.json()["pods"] == ["llama-1"]
    assert sent == [("east", "ml", "llama-1", "KILL")]
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.actor_name, entry.object_id) == ("inject_fault", "ann", str(job.pk))
    assert entry.after == {"replica_index": 1, "signal": "KILL", "pods": ["llama-1"]}


DENIED: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], int, str]] = [
    # name, the user, the job, the request; status and code
    ("no permission", {}, {}, {}, 403, "permission_denied"),
    ("staff without it", {"staff": True}, {}, {}, 403, "permission_denied"),
    ("not a sandbox", MAY, {"sandbox": False}, {}, 403, "not_a_sandbox"),
    ("finished", MAY, {"phase": "succeeded"}, {}, 403, "finished"),
    ("no such replica", MAY, {}, {"replica_index": 7}, 409, "no_such_replica"),
    ("a replica that has ended", MAY, {}, {"replica_index": 2}, 409, "no_such_replica"),
    ("a signal that isn't known", MAY, {}, {"signal": "HUP"}, 400, "invalid_choice"),
    ("a negative index", MAY, {}, {"replica_index": -1}, 400, "min_value"),
    ("no index", MAY, {}, {"replica_index": None}, 400, "null"),
]


@pytest.mark.parametrize(
    ("name", "user", "fields", "given", "status", "code"), DENIED, ids=[d[0] for d in DENIED]
)
def test_denied(
    make_api: Api, name: str, user: dict[str, Any], fields: dict[str, Any],
    given: dict[str, Any], status: int, code: str,
) -> None:  # fmt: skip
    job = make_sandbox_job(**fields)
    response = inject(make_api("ann", **user), job, **{"index": given.get("replica_index", 1),
                                                       **given})  # fmt: skip
    assert (response.status_code, response.json()["errors"][0]["code"]) == (status, code)
    assert sent == []
    assert not AuditEntry.objects.exists()


def test_a_visitor(make_api: Api) -> None:
    assert inject(make_api(), make_sandbox_job()).status_code == 401
    assert sent == []


def test_a_cluster_that_refuses(make_api: Api, settings: Any) -> None:
    settings.CONCERTINA_POD_SIGNALLER = f"{__name__}.broken"
    response = inject(make_api("ann", **MAY), make_sandbox_job())
    [error] = response.json()["errors"]
    assert (response.status_code, error["code"]) == (503, "signal_failed")
    assert "the sandbox doesn't answer" in error["message"]
    assert AuditEntry.objects.get().after["error"] == "the sandbox doesn't answer"


def test_the_configured_signaller_exists() -> None:
    from django.utils.module_loading import import_string

    from controlplane.settings import base

    assert callable(import_string(base.CONCERTINA_POD_SIGNALLER))
