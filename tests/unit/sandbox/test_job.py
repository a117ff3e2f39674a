"""The Job controller, in virtual time, with all the other components running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane.sandbox.controllers.indexes import lowest_free, parse, written
from controlplane.sandbox.kinds import JOB, POD
from controlplane.sandbox.objects import meta, name_of
from tests.unit.sandbox.builders import make_job, running_cluster


def counts(**given: Any) -> dict[str, Any]:
    zero = {"active": 0, "ready": 0, "succeeded": 0, "failed": 0, "terminating": 0, "final": ""}
    return {**zero, **given}


async def test_indexed_pods(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("llama", 3, gpus=8))
        await cluster.settle()
        assert cluster.job_status("llama") == counts(active=3)
        await cluster.advance(1.0)
        assert cluster.job_status("llama") == counts(active=3, ready=3)
        assert cluster.indexes("llama") == [0, 1, 2]
        pod = cluster.pod_of_index("llama", 1)
        assert pod["spec"]["hostname"] == "llama-1"
        assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
        assert [v["name"] for v in pod["spec"]["containers"][0]["env"]] == ["JOB_COMPLETION_INDEX"]


@pytest.mark.parametrize(
    ("start", "sizes", "want"),
    [
        (3, [5], [0, 1, 2, 3, 4]),
        (5, [2], [0, 1]),
        (4, [1, 3], [0, 1, 2]),
        (2, [4, 2, 3], [0, 1, 2]),
    ],
)
async def test_resize_takes_and_gives_the_highest_indexes(
    tmp_path: Path, start: int, sizes: list[int], want: list[int]
) -> None:
    async with running_cluster(tmp_path, "main=6x8") as cluster:
        cluster.create(JOB, make_job("llama", start, gpus=8))
        await cluster.advance(1.0)
        kept = meta(cluster.pod_of_index("llama", 0))["uid"]
        for size in sizes:
            cluster.resize("llama", size)
            await cluster.advance(3.0)
        assert cluster.indexes("llama") == want
        assert cluster.job_status("llama") == counts(active=len(want), ready=len(want))
        assert meta(cluster.pod_of_index("llama", 0))["uid"] == kept, "replica 0 never restarted"


async def test_pods_of_a_scale_down_are_terminating_then_gone_never_failed(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("llama", 4, gpus=8, backoffLimit=0))
        await cluster.advance(1.0)
        cluster.resize("llama", 1)
        await cluster.settle()
        assert cluster.job_status("llama") == counts(active=1, ready=1, terminating=3)
        await cluster.advance(2.0)
        assert cluster.job_status("llama") == counts(active=1, ready=1)
        assert len(cluster.pods("llama")) == 1


@pytest.mark.parametrize(
    ("finished", "want_status", "want_active"),
    [
        # kueue 13117: 15 of 20 finished, shrunk to 10: what is accounted is 10
        (range(5, 20), counts(succeeded=5, active=5, ready=5), [0, 1, 2, 3, 4]),
        (range(15), counts(succeeded=10, final="Complete"), []),
    ],
)
async def test_twenty_pods_fifteen_finished_shrunk_to_ten(
    tmp_path: Path, finished: range, want_status: dict[str, Any], want_active: list[int]
) -> None:
    async with running_cluster(tmp_path, "main=20x8") as cluster:
        cluster.create(JOB, make_job("llama", 20, gpus=8))
        await cluster.advance(1.0)
        for index in finished:
            cluster.end(cluster.pod_of_index("llama", index))
        await cluster.advance(0.5)
        assert cluster.job_status("llama")["succeeded"] == 15
        cluster.resize("llama", 10)
        await cluster.advance(3.0)
        assert cluster.job_status("llama") == want_status
        assert cluster.indexes("llama") == want_active


async def test_failed_pod_is_replaced_under_its_index_after_a_back_off(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("llama", 3, gpus=8))
        await cluster.advance(1.0)
        cluster.end(cluster.pod_of_index("llama", 1), 137)
        await cluster.settle()
        assert cluster.job_status("llama") == counts(active=2, ready=2, failed=1)
        await cluster.advance(0.75)
        assert cluster.indexes("llama") == [0, 2], "the replacement waits a second"
        await cluster.advance(0.5)
        assert cluster.indexes("llama") == [0, 1, 2]
        await cluster.advance(1.0)
        cluster.end(cluster.pod_of_index("llama", 1), 1)
        await cluster.advance(1.75)
        assert cluster.indexes("llama") == [0, 2], "after a second failure it waits two"
        await cluster.advance(0.5)
        assert cluster.indexes("llama") == [0, 1, 2]
        assert cluster.job_status("llama")["failed"] == 2


async def test_named_victim_and_a_pod_that_dies_by_itself(tmp_path: Path) -> None:
    """kuberay 208: shrinking takes the named (highest) index even while another has failed."""
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("llama", 4, gpus=8))
        await cluster.advance(1.0)
        cluster.end(cluster.pod_of_index("llama", 1), 1)
        cluster.resize("llama", 3)
        await cluster.advance(3.0)
        assert cluster.indexes("llama") == [0, 1, 2]


@pytest.mark.parametrize(
    ("limit", "failures", "want_final"),
    [(0, 1, "Failed"), (2, 2, ""), (2, 3, "Failed")],
)
async def test_backoff_limit(tmp_path: Path, limit: int, failures: int, want_final: str) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("llama", 2, gpus=8, backoffLimit=limit))
        for _ in range(failures):
            await cluster.advance(12.0)
            cluster.end(cluster.pod_of_index("llama", 0), 1)
        await cluster.advance(0.25)
        kinds = [c["type"] for c in cluster.get(JOB, "llama")["status"].get("conditions") or ()]
        if want_final:
            assert kinds == ["FailureTarget"], "final only when the last pod has ended"
        await cluster.advance(15.0)
        status = cluster.job_status("llama")
        assert status["final"] == want_final
        assert status["active"] == (0 if want_final else 2)


@pytest.mark.parametrize(
    ("rule", "want_failed", "want_final"),
    [
        ({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}, 0, ""),
        ({"action": "Count", "onExitCodes": {"operator": "In", "values": [42]}}, 1, ""),
        ({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}, 1, "Failed"),
        ({"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42]}}, 1, ""),
    ],
)
async def test_pod_failure_policy(
    tmp_path: Path, rule: dict[str, Any], want_failed: int, want_final: str
) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("llama", 1, podFailurePolicy={"rules": [rule]}))
        await cluster.advance(1.0)
        cluster.end(cluster.pods("llama")[0], 42)
        await cluster.advance(1.0)
        status = cluster.job_status("llama")
        assert (status["failed"], status["final"]) == (want_failed, want_final)


async def test_deleted_by_somebody_else_is_a_failure_and_replaced(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("llama", 2, gpus=8))
        await cluster.advance(1.0)
        victim = cluster.pod_of_index("llama", 1)
        cluster.store.delete(POD, "default", name_of(victim))
        await cluster.advance(3.0)
        assert cluster.job_status("llama") == counts(active=2, ready=2, failed=1)


async def test_suspend_and_resume(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("llama", 2, gpus=8))
        await cluster.advance(1.0)
        cluster.change(JOB, "llama", lambda j: j["spec"].update(suspend=True))
        await cluster.advance(2.0)
        assert cluster.job_status("llama") == counts()
        status = cluster.get(JOB, "llama")["status"]
        assert "startTime" not in status
        assert [(c["type"], c["status"]) for c in status["conditions"]] == [("Suspended", "True")]
        cluster.change(JOB, "llama", lambda j: j["spec"].update(suspend=False))
        await cluster.advance(2.0)
        assert cluster.job_status("llama") == counts(active=2, ready=2)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"completionMode": None, "parallelism": 2, "completions": 5}, 5),
        ({"completionMode": None, "parallelism": 3, "completions": None}, 3),
        ({"parallelism": 2, "completions": 4}, 4),
    ],
)
async def test_runs_to_completion(tmp_path: Path, spec: dict[str, Any], want: int) -> None:
    done = {"sandbox.concertina.dev/exit-after": "2"}
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("short", annotations=done, **spec))
        await cluster.advance(12.0)
        assert cluster.job_status("short") == counts(succeeded=want, final="Complete")
        assert cluster.get(JOB, "short")["status"]["completionTime"]


async def test_deadline_and_time_to_live(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        spec = {"activeDeadlineSeconds": 5, "ttlSecondsAfterFinished": 10}
        cluster.create(JOB, make_job("late", 1, **spec))
        await cluster.advance(8.0)
        assert cluster.job_status("late")["final"] == "Failed"
        await cluster.advance(12.0)
        assert cluster.store.find(JOB, "default", "late") is None
        assert cluster.pods("late") == []


async def test_counted_once_over_a_kill_between_two_writes(tmp_path: Path) -> None:
    """The uids noted as uncounted, whose pods were let go already, count after a restart."""
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("llama", 1))
        await cluster.advance(1.0)
        noted = {"failed": ["uid-that-was-let-go"]}
        cluster.change(
            JOB, "llama", lambda j: j["status"].update(uncountedTerminatedPods=noted), status=True
        )
        await cluster.settle()
        assert cluster.job_status("llama")["failed"] == 1
        assert cluster.get(JOB, "llama")["status"]["uncountedTerminatedPods"] == {}


async def test_deleting_a_job_takes_its_pods_along(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        for how in ("Background", "Foreground"):
            cluster.create(JOB, make_job("llama", 2, gpus=8))
            await cluster.advance(1.0)
            cluster.store.delete(JOB, "default", "llama", propagation=how)
            await cluster.advance(3.0)
            assert cluster.store.find(JOB, "default", "llama") is None, how
            assert cluster.pods("llama") == [], how


async def test_orphaned_pods_lose_owner_and_finalizer(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(JOB, make_job("llama", 1))
        await cluster.advance(1.0)
        cluster.store.delete(JOB, "default", "llama", propagation="Orphan")
        await cluster.advance(1.0)
        [pod] = cluster.pods("llama")
        assert "ownerReferences" not in meta(pod)
        assert "finalizers" not in meta(pod)


@pytest.mark.parametrize(
    ("indexes", "want"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0,1"),
        ([0, 1, 2, 5], "0-2,5"),
        ([7, 1, 2, 3, 9, 10], "1-3,7,9,10"),
    ],
)
def test_index_lists(indexes: list[int], want: str) -> None:
    assert written(indexes) == want
    assert parse(want, 100) == set(indexes)
    assert parse(want, 3) == {i for i in indexes if i < 3}


def test_lowest_free_index() -> None:
    assert lowest_free({0, 2}, 5, 2) == [1, 3]
    assert lowest_free({0, 1}, 2, 2) == []
