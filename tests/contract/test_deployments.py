"""apps/v1 Deployments: ReplicaSets, readiness, scaling, rolling updates."""

from __future__ import annotations

from typing import Any

from tests.contract.backends import wait_until
from tests.contract.support import Space, deployment, needs

COST = "controller.kubernetes.io/pod-deletion-cost"
REVISION = "deployment.kubernetes.io/revision"


def create(space: Space, replicas: int, **spec: Any) -> Any:
    """A deployment named d on a node with room for it."""
    space.node("n", gpus=64)
    body = deployment("d", replicas, **spec)
    body["spec"]["template"]["spec"]["nodeSelector"] = space.selector
    return space.cluster.apps.create_namespaced_deployment(space.name, body)


def live(space: Space) -> list[Any]:
    return [item for item in space.pods("app=d") if not item.metadata.deletion_timestamp]


def bound(space: Space, count: int) -> list[Any]:
    """Wait for `count` bound pods, letting go those that are deleted."""

    def settled() -> list[Any] | None:
        for item in space.pods("app=d"):
            if item.metadata.deletion_timestamp:
                space.remove(item.metadata.name)
        found = live(space)
        return found if len(found) == count and all(p.spec.node_name for p in found) else None

    return wait_until(settled, f"{count} pods are bound")


def run_all(space: Space) -> None:
    for item in live(space):
        if item.spec.node_name and item.status.phase == "Pending":
            space.run(item.metadata.name)


def status_becomes(space: Space, **want: int | None) -> Any:
    def reached() -> Any:
        found = space.cluster.apps.read_namespaced_deployment_status("d", space.name)
        ready = all(getattr(found.status, key) == value for key, value in want.items())
        current = found.status.observed_generation == found.metadata.generation
        return found if ready and current else None

    return wait_until(reached, f"the deployment's status has {want}")


def sets(space: Space) -> list[Any]:
    return space.cluster.apps.list_namespaced_replica_set(space.name, label_selector="app=d").items


def test_pods_come_from_a_replica_set(space: Space) -> None:
    made = create(space, 2)
    pods = bound(space, 2)
    [owned] = sets(space)
    [reference] = owned.metadata.owner_references
    assert (reference.kind, reference.name, reference.controller) == ("Deployment", "d", True)
    assert reference.uid == made.metadata.uid
    label = owned.metadata.labels["pod-template-hash"]
    assert owned.metadata.name == f"d-{label}"
    assert owned.metadata.annotations[REVISION] == "1"
    for item in pods:
        [reference] = item.metadata.owner_references
        assert (reference.kind, reference.uid) == ("ReplicaSet", owned.metadata.uid)
        assert item.metadata.labels == {"app": "d", "pod-template-hash": label}
        assert item.metadata.name.startswith(f"{owned.metadata.name}-")
        assert item.metadata.generate_name == f"{owned.metadata.name}-"


def test_status_counts_ready_pods(space: Space) -> None:
    create(space, 2)
    first, _ = bound(space, 2)
    status_becomes(space, replicas=2, updated_replicas=2, unavailable_replicas=2)
    space.run(first.metadata.name)
    status_becomes(space, ready_replicas=1, available_replicas=1, unavailable_replicas=1)
    run_all(space)
    found = status_becomes(space, ready_replicas=2, available_replicas=2, unavailable_replicas=None)
    conditions = {c.type: (c.status, c.reason) for c in found.status.conditions}
    assert conditions["Available"] == ("True", "MinimumReplicasAvailable")
    assert conditions["Progressing"] == ("True", "NewReplicaSetAvailable")


def test_scales_up_and_down(space: Space) -> None:
    create(space, 1)
    bound(space, 1)
    apps = space.cluster.apps
    apps.patch_namespaced_deployment_scale("d", space.name, {"spec": {"replicas": 4}})
    bound(space, 4)
    run_all(space)
    status_becomes(space, replicas=4, ready_replicas=4)
    apps.patch_namespaced_deployment("d", space.name, {"spec": {"replicas": 1}})
    bound(space, 1)
    status_becomes(space, replicas=1, ready_replicas=1)
    assert apps.read_namespaced_deployment_scale("d", space.name).status.replicas == 1
    apps.patch_namespaced_deployment("d", space.name, {"spec": {"replicas": 0}})
    wait_until(lambda: not live(space), "no pods are left")


def test_scaling_down_takes_pods_that_do_not_run_first(space: Space) -> None:
    create(space, 3)
    kept, *_ = bound(space, 3)
    space.run(kept.metadata.name)
    status_becomes(space, ready_replicas=1)
    space.cluster.apps.patch_namespaced_deployment("d", space.name, {"spec": {"replicas": 1}})
    [left] = bound(space, 1)
    assert left.metadata.name == kept.metadata.name


def test_pod_deletion_cost(space: Space) -> None:
    needs(space.cluster, 22, "pod-deletion-cost")
    create(space, 3)
    pods = bound(space, 3)
    run_all(space)
    status_becomes(space, ready_replicas=3)
    cheap = pods[1].metadata.name
    space.cluster.core.patch_namespaced_pod(
        cheap, space.name, {"metadata": {"annotations": {COST: "-10"}}}
    )
    space.cluster.apps.patch_namespaced_deployment("d", space.name, {"spec": {"replicas": 2}})
    assert cheap not in [item.metadata.name for item in bound(space, 2)]


def test_deleted_pod_is_replaced(space: Space) -> None:
    create(space, 2)
    first, second = bound(space, 2)
    run_all(space)
    space.cluster.core.delete_namespaced_pod(first.metadata.name, space.name)
    space.remove(first.metadata.name)
    names = {item.metadata.name for item in bound(space, 2)}
    assert second.metadata.name in names
    assert first.metadata.name not in names


def test_rolling_update(space: Space) -> None:
    create(space, 2, strategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    bound(space, 2)
    run_all(space)
    status_becomes(space, ready_replicas=2)
    change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    space.cluster.apps.patch_namespaced_deployment("d", space.name, change)

    def rolled() -> bool:
        for item in space.pods("app=d"):
            if item.metadata.deletion_timestamp:
                space.remove(item.metadata.name)
        run_all(space)
        found = live(space)
        ready = [p for p in found if p.status.phase == "Running"]
        assert len(ready) >= 2, "maxUnavailable 0"
        assert len(found) <= 3, "maxSurge 1"
        return len(found) == 2 and all(
            (p.metadata.annotations or {}).get("version") == "2" for p in found
        )

    wait_until(rolled, "every pod is of the new template")
    status_becomes(space, updated_replicas=2, ready_replicas=2, replicas=2)
    counts = {s.metadata.annotations[REVISION]: s.spec.replicas for s in sets(space)}
    assert counts == {"1": 0, "2": 2}


def test_recreate_ends_the_old_first(space: Space) -> None:
    create(space, 1, strategy={"type": "Recreate"})
    [old] = bound(space, 1)
    run_all(space)
    status_becomes(space, ready_replicas=1)
    change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    space.cluster.apps.patch_namespaced_deployment("d", space.name, change)
    wait_until(
        lambda: [p for p in space.pods("app=d") if p.metadata.deletion_timestamp],
        "the old pod is being deleted",
    )
    assert len(space.pods("app=d")) == 1
    space.remove(old.metadata.name)
    [new] = bound(space, 1)
    assert new.metadata.name != old.metadata.name


def test_paused_deployment_does_not_roll(space: Space) -> None:
    create(space, 1)
    bound(space, 1)
    space.cluster.apps.patch_namespaced_deployment("d", space.name, {"spec": {"paused": True}})
    change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    space.cluster.apps.patch_namespaced_deployment("d", space.name, change)
    status_becomes(space, replicas=1)
    assert len(sets(space)) == 1


def test_deleting_it_takes_everything(space: Space) -> None:
    create(space, 2)
    bound(space, 2)
    space.cluster.apps.delete_namespaced_deployment("d", space.name)
    wait_until(lambda: not sets(space), "the replica sets are gone")

    def emptied() -> bool:
        for item in space.pods("app=d"):
            if item.metadata.deletion_timestamp:
                space.remove(item.metadata.name)
        return not space.pods("app=d")

    wait_until(emptied, "the pods are gone")
