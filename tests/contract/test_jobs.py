"""batch/v1 Jobs: pods, completion, failure, resizing, suspension; Indexed and elastic."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.contract.backends import wait_until
from tests.contract.support import Object, Space, causes, job, needs, status_of

INDEX = "batch.kubernetes.io/job-completion-index"


def create(space: Space, **spec: Any) -> Any:
    """A job named j on a node with room for it."""
    space.node("n", gpus=64)
    body = job("j", pod_more={"nodeSelector": space.selector}, **spec)
    return space.cluster.batch.create_namespaced_job(space.name, body)


def live(space: Space) -> list[Any]:
    """The job's pods that are neither finished nor being deleted."""
    return [
        item
        for item in space.pods()
        if item.status.phase in ("Pending", "Running") and not item.metadata.deletion_timestamp
    ]


def pods_become(space: Space, count: int) -> list[Any]:
    """Wait for `count` live pods, letting go those that the controller deletes."""

    def settled() -> list[Any] | None:
        for item in space.pods():
            if item.metadata.deletion_timestamp:
                space.remove(item.metadata.name)
        found = live(space)
        return found if len(found) == count and all(p.spec.node_name for p in found) else None

    if count == 0:
        wait_until(lambda: not live(space), "no pods are left")
        return []
    return wait_until(settled, f"{count} pods are bound")


def status(space: Space) -> Any:
    return space.cluster.batch.read_namespaced_job_status("j", space.name).status


def status_becomes(space: Space, **want: int | None) -> None:
    def reached() -> bool:
        found = status(space)
        return all(getattr(found, key) == value for key, value in want.items())

    wait_until(reached, f"the job's status has {want}")


def condition_becomes(space: Space, kind: str) -> Any:
    def found() -> Any:
        conditions = status(space).conditions or ()
        return next((c for c in conditions if c.type == kind and c.status == "True"), None)

    return wait_until(found, f"the job is {kind}")


def patch(space: Space, **spec: Any) -> Any:
    return space.cluster.batch.patch_namespaced_job("j", space.name, {"spec": spec})


def test_defaults(space: Space) -> None:
    made = space.cluster.batch.create_namespaced_job(space.name, job("j"))
    spec = made.spec
    assert (spec.parallelism, spec.completions, spec.backoff_limit) == (1, 1, 6)
    labels = spec.template.metadata.labels
    assert labels["job-name"] == "j"
    assert labels["controller-uid"] == made.metadata.uid
    [(key, value)] = spec.selector.match_labels.items()
    assert (key.rpartition("/")[2], value) == ("controller-uid", made.metadata.uid)
    needs(space.cluster, 27, "labels with the batch.kubernetes.io prefix")
    assert labels["batch.kubernetes.io/job-name"] == "j"
    assert key == "batch.kubernetes.io/controller-uid"
    assert (spec.completion_mode, spec.suspend) == ("NonIndexed", False)


def test_pods_belong_to_the_job(space: Space) -> None:
    made = create(space, parallelism=2, completions=2)
    for item in pods_become(space, 2):
        [reference] = item.metadata.owner_references
        assert (reference.kind, reference.api_version) == ("Job", "batch/v1")
        assert (reference.name, reference.uid) == ("j", made.metadata.uid)
        assert (reference.controller, reference.block_owner_deletion) == (True, True)
        assert item.metadata.labels["job-name"] == "j"
        assert item.metadata.name.startswith("j-")
    status_becomes(space, active=2, succeeded=None, failed=None)
    assert status(space).start_time is not None


def test_runs_to_completion(space: Space) -> None:
    create(space, parallelism=2, completions=3)
    first, second = pods_become(space, 2)
    space.finish(first.metadata.name)
    status_becomes(space, active=2, succeeded=1)
    space.finish(second.metadata.name)
    [third] = pods_become(space, 1)
    status_becomes(space, active=1, succeeded=2)
    space.finish(third.metadata.name)
    condition_becomes(space, "Complete")
    status_becomes(space, succeeded=3)
    done = status(space)
    assert not done.active
    assert done.completion_time is not None


def test_failed_pods_are_replaced_up_to_the_limit(space: Space) -> None:
    create(space, backoffLimit=1)
    [first] = pods_become(space, 1)
    space.finish(first.metadata.name, "Failed", 1)
    status_becomes(space, failed=1, active=1)
    [second] = pods_become(space, 1)
    space.finish(second.metadata.name, "Failed", 1)
    assert condition_becomes(space, "Failed").reason == "BackoffLimitExceeded"
    assert status(space).completion_time is None


def test_failure_ends_the_pods_that_run(space: Space) -> None:
    create(space, parallelism=3, completions=3, backoffLimit=0)
    first, *rest = pods_become(space, 3)
    for item in rest:
        space.run(item.metadata.name)
    space.finish(first.metadata.name, "Failed", 1)
    pods_become(space, 0)
    for item in rest:
        space.remove(item.metadata.name)
    condition_becomes(space, "Failed")


def test_deleted_pod_is_replaced(space: Space) -> None:
    create(space)
    [first] = pods_become(space, 1)
    space.run(first.metadata.name)
    space.remove(first.metadata.name)

    def replaced() -> bool:
        return [p.metadata.name for p in live(space)] not in ([], [first.metadata.name])

    wait_until(replaced, "another pod takes its place")


def test_parallelism_resizes(space: Space) -> None:
    create(space, parallelism=1, completions=6)
    pods_become(space, 1)
    patch(space, parallelism=4)
    pods_become(space, 4)
    status_becomes(space, active=4)
    patch(space, parallelism=2)
    pods_become(space, 2)
    status_becomes(space, active=2)
    patch(space, parallelism=0)
    pods_become(space, 0)


def test_suspend(space: Space) -> None:
    needs(space.cluster, 24, "suspended Jobs")
    create(space, parallelism=2, completions=2, suspend=True)
    condition_becomes(space, "Suspended")
    assert space.pods() == []
    assert status(space).start_time is None
    patch(space, suspend=False)
    pods_become(space, 2)
    wait_until(lambda: status(space).start_time, "the job has started")
    patch(space, suspend=True)
    pods_become(space, 0)


# -- Indexed ------------------------------------------------------------------------------------


def indexes(pods: list[Any]) -> list[int]:
    return sorted(int(item.metadata.annotations[INDEX]) for item in pods)


def create_indexed(space: Space, size: int, **spec: Any) -> Any:
    needs(space.cluster, 24, "Indexed Jobs")
    return create(space, completionMode="Indexed", parallelism=size, completions=size, **spec)


def by_index(space: Space, index: int) -> str:
    [found] = [p for p in live(space) if p.metadata.annotations[INDEX] == str(index)]
    return found.metadata.name


def test_indexed_pods_know_their_index(space: Space) -> None:
    create_indexed(space, 3)
    pods = pods_become(space, 3)
    assert indexes(pods) == [0, 1, 2]
    for item in pods:
        index = item.metadata.annotations[INDEX]
        assert item.metadata.name.startswith(f"j-{index}-")
        assert item.spec.hostname == f"j-{index}"
        assert item.metadata.labels[INDEX] == index
        [variable] = [e for e in item.spec.containers[0].env if e.name == "JOB_COMPLETION_INDEX"]
        assert INDEX in variable.value_from.field_ref.field_path


def test_indexed_job_completes_when_every_index_has(space: Space) -> None:
    create_indexed(space, 3)
    pods_become(space, 3)
    for index in (2, 0):
        space.finish(by_index(space, index))
    status_becomes(space, succeeded=2, completed_indexes="0,2")
    space.finish(by_index(space, 1))
    condition_becomes(space, "Complete")
    assert status(space).completed_indexes == "0-2"


def test_failed_index_runs_again(space: Space) -> None:
    create_indexed(space, 2)
    pods_become(space, 2)
    failed = by_index(space, 1)
    space.finish(failed, "Failed", 1)

    def again() -> bool:
        found = [p for p in live(space) if p.metadata.annotations[INDEX] == "1"]
        return len(found) == 1 and found[0].metadata.name != failed

    wait_until(again, "index 1 runs again")
    status_becomes(space, failed=1, active=2)


def test_elastic_indexed_job_grows_and_shrinks_from_the_top(space: Space) -> None:
    """KEP-3715: parallelism and completions change together."""
    needs(space.cluster, 27, "elastic Indexed Jobs")
    create_indexed(space, 2)
    kept = {p.metadata.uid for p in pods_become(space, 2)}
    patch(space, parallelism=4, completions=4)
    pods = pods_become(space, 4)
    assert indexes(pods) == [0, 1, 2, 3]
    assert kept <= {p.metadata.uid for p in pods}, "those that ran run on"
    kept = {p.metadata.uid for p in pods if int(p.metadata.annotations[INDEX]) < 3}
    patch(space, parallelism=3, completions=3)
    pods = pods_become(space, 3)
    assert indexes(pods) == [0, 1, 2]
    assert {p.metadata.uid for p in pods} == kept
    status_becomes(space, active=3)


def test_pods_removed_by_a_shrink_are_not_failures(space: Space) -> None:
    needs(space.cluster, 27, "elastic Indexed Jobs")
    create_indexed(space, 3, backoffLimit=0)
    pods_become(space, 3)
    patch(space, parallelism=1, completions=1)
    pods_become(space, 1)
    status_becomes(space, active=1, failed=None)
    space.finish(by_index(space, 0))
    condition_becomes(space, "Complete")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"completions": 5}, "spec.completions"),
        ({"completions": 5, "parallelism": 4}, "spec.completions"),
        ({"completionMode": "NonIndexed"}, "spec.completionMode"),
    ],
    ids=str,
)
def test_completions_change_only_with_parallelism(space: Space, change: Object, field: str) -> None:
    needs(space.cluster, 27, "elastic Indexed Jobs")
    create_indexed(space, 2)
    with pytest.raises(ApiException) as caught:
        patch(space, **change)
    assert caught.value.status == 422
    assert field in causes(status_of(caught.value))
    found = space.cluster.batch.read_namespaced_job("j", space.name).spec
    assert (found.parallelism, found.completions) == (2, 2)


def test_indexed_job_needs_completions(space: Space) -> None:
    needs(space.cluster, 24, "Indexed Jobs")
    with pytest.raises(ApiException) as caught:
        space.cluster.batch.create_namespaced_job(
            space.name, job("j", completionMode="Indexed", parallelism=2)
        )
    assert causes(status_of(caught.value)) == ["spec.completions"]
