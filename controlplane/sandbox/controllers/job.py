"""The Job controller: Indexed and NonIndexed, elastic (KEP-3715), suspend, failures.

Source: k8s.io/kubernetes `pkg/controller/job/job_controller.go`. Ended pods are counted through
the finalizer `batch.kubernetes.io/job-tracking`; a pod that the controller itself removes loses
it first, so what a resize or a suspension takes away is never a failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.sandbox.clock import Clock
from controlplane.sandbox.controllers import job_status
from controlplane.sandbox.controllers.indexes import (
    COMPLETION_INDEX,
    index_of,
    lowest_free,
    surplus,
)
from controlplane.sandbox.controllers.job_state import JobState, Verdict, judge
from controlplane.sandbox.controllers.owned import Owned, controller_of
from controlplane.sandbox.controllers.pods import from_template, leaving_first
from controlplane.sandbox.controllers.runner import run_controller
from controlplane.sandbox.kinds import JOB, POD
from controlplane.sandbox.objects import Object, clone, meta, name_of, namespace_of
from controlplane.sandbox.store import Event, Store

MOST_AT_ONCE = 100  # pods created in one sync; the others follow after what waits meanwhile
TRACKING = "batch.kubernetes.io/job-tracking"
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed pod's replacement waits: `first` seconds, doubled with every further
    failure in a row, at most `last`. The real controller's 10 s and 10 min are for clusters, not
    for demos. Failures further apart than `forget` seconds don't follow each other.
    """

    first: float = 1.0
    last: float = 10.0
    forget: float = 60.0

    def seconds(self, failures: int) -> float:
        return 0.0 if failures < 1 else min(self.first * 2 ** (failures - 1), self.last)


class JobController:
    """Reconciles one job at a time; see the module."""

    def __init__(self, store: Store, clock: Clock, backoff: Backoff | None = None) -> None:
        self._store = store
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._pods = Owned(store, POD)
        self._failures: dict[str, tuple[int, float]] = {}  # job uid -> in a row, time of the last
        for pod in store.list(POD):
            self._let_go_orphan(pod)

    def keys_of(self, event: Event) -> Iterable[Key]:
        """The job that an event concerns. Pods whose job is gone are let go on the way."""
        if event.kind is JOB:
            if event.type == "DELETED":
                self._failures.pop(meta(event.object)["uid"], None)
                self._let_go(self._pods.of(meta(event.object)["uid"]))
                return []
            return [(namespace_of(event.object), name_of(event.object))]
        if event.kind is POD and event.type != "DELETED":
            self._let_go_orphan(event.object)
        if event.kind is POD:
            owner = controller_of(event.object)
            if owner is not None and owner["kind"] == JOB.kind:
                return [(namespace_of(event.object), owner["name"])]
        return []

    def close(self) -> None:
        self._pods.close()

    def sync(self, key: Key) -> float | None:
        """Bring one job to its state; when (unix seconds) to look again, if it matters."""
        job = self._store.find(JOB, *key)
        if job is None:
            return None
        if meta(job).get("deletionTimestamp"):
            self._let_go(self._pods.of(meta(job)["uid"]))
            return None
        if job_status.is_finished(job):
            self._let_go(self._pods.of(meta(job)["uid"]))
            return self._expire(job)
        now = self._clock.now()
        state = JobState.of(job, self._pods.of(meta(job)["uid"]), TRACKING)
        self._count(state, now)
        verdict = judge(state, now)
        wake = None
        if verdict is not None:
            self._end(state, verdict)
        elif state.suspended:
            self._remove(state.active)
            state.active = []
        else:
            wake = self._manage(state, now)
        job_status.write(self._store, state, verdict, self._pods.of(state.uid), now)
        return min(filter(None, (wake, job_status.deadline(state))), default=None)

    # -- counting ------------------------------------------------------------------------------

    def _count(self, state: JobState, now: float) -> None:
        """Count ended pods once: note their uids, take the finalizers off, then count."""
        ended = state.newly_ended()
        if not ended:
            return
        job_status.note_uncounted(self._store, state, ended)
        self._let_go(ended)
        failed = [pod for pod in ended if state.counts_as_failure(pod)]
        if failed:
            count, last = self._failures.get(state.uid, (0, 0.0))
            again = now - last <= self._backoff.forget
            self._failures[state.uid] = ((count if again else 0) + len(failed), now)
        elif any(state.is_success(pod) for pod in ended):
            self._failures.pop(state.uid, None)
        state.count(ended)

    def _let_go(self, pods: Iterable[Object]) -> None:
        """Take the tracking finalizer off, which lets deleted pods go."""
        for pod in pods:
            finalizers = meta(pod).get("finalizers") or []
            if TRACKING in finalizers:
                new = clone(pod)
                new["metadata"]["finalizers"] = [f for f in finalizers if f != TRACKING]
                if not new["metadata"]["finalizers"]:
                    del new["metadata"]["finalizers"]
                self._store.update(POD, new)

    def _let_go_orphan(self, pod: Object) -> None:
        """A pod without its job loses the finalizer that only the job could remove."""
        if TRACKING not in (meta(pod).get("finalizers") or ()):
            return
        owner = controller_of(pod)
        job = owner and self._store.find(JOB, namespace_of(pod), owner["name"])
        if not job or meta(job)["uid"] != owner["uid"]:
            current = self._store.find(POD, namespace_of(pod), name_of(pod))
            self._let_go([current] if current else [])

    # -- pods ----------------------------------------------------------------------------------

    def _manage(self, state: JobState, now: float) -> float | None:
        """Create or delete pods; when to look again, while replacements wait."""
        wanted = state.wanted()
        excess = max(len(state.active) - wanted, 0)
        leaving = (
            surplus(state.active, state.completions or 0, excess)
            if state.indexed
            else leaving_first(state.active, state.active)[:excess]
        )
        if leaving:
            self._remove(leaving)
            gone = {meta(pod)["uid"] for pod in leaving}
            state.active = [pod for pod in state.active if meta(pod)["uid"] not in gone]
        missing = wanted - len(state.active) - (state.terminating if state.only_failed else 0)
        if missing <= 0:
            return None
        failures, last = self._failures.get(state.uid, (0, 0.0))
        due = last + self._backoff.seconds(failures)
        if due > now:
            return due
        self._create(state, min(missing, MOST_AT_ONCE))
        return now if missing > MOST_AT_ONCE else None

    def _create(self, state: JobState, count: int) -> None:
        if not state.indexed:
            for _ in range(count):
                state.active.append(self._store.create(POD, self._new_pod(state.job, None)))
            return
        taken = {i for i in map(index_of, state.active) if i is not None} | state.succeeded_indexes
        if state.only_failed:
            taken |= {i for i in map(index_of, state.leaving) if i is not None}
        taken |= state.failed_indexes
        for index in lowest_free(taken, state.completions or 0, count):
            state.active.append(self._store.create(POD, self._new_pod(state.job, index)))

    def _new_pod(self, job: Object, index: int | None) -> Object:
        name = name_of(job)
        prefix = f"{name}-" if index is None else f"{name}-{index}-"
        pod = from_template(JOB, job, job["spec"]["template"], prefix=prefix)
        pod["metadata"]["finalizers"].append(TRACKING)
        if index is not None:
            pod["metadata"]["annotations"][COMPLETION_INDEX] = str(index)
            pod["metadata"]["labels"][COMPLETION_INDEX] = str(index)
            pod["spec"].setdefault("hostname", f"{name}-{index}")
            _add_index_variable(pod["spec"])
        return pod

    def _remove(self, pods: Iterable[Object]) -> None:
        """Delete pods that aren't wanted; without the finalizer they aren't counted."""
        for pod in pods:
            self._let_go([pod])
            self._store.delete(POD, namespace_of(pod), name_of(pod))

    def _end(self, state: JobState, verdict: Verdict) -> None:
        """A job that is decided keeps no pod running; those that end now still count."""
        for pod in state.active:
            self._store.delete(POD, namespace_of(pod), name_of(pod))
        state.active = []

    def _expire(self, job: Object) -> float | None:
        """Delete a finished job once its ttlSecondsAfterFinished have passed."""
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        finished = job_status.finished_at(job)
        if seconds is None or finished is None:
            return None
        due = finished + seconds
        if due > self._clock.now():
            return due
        self._store.delete(JOB, namespace_of(job), name_of(job), propagation="Foreground")
        return None


def _add_index_variable(spec: Object) -> None:
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        variables = container.setdefault("env", [])
        if not any(variable["name"] == "JOB_COMPLETION_INDEX" for variable in variables):
            field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}
            variables.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}})


async def run(store: Store, clock: Clock, backoff: Backoff | None = None) -> None:
    """Reconcile jobs until cancelled."""
    controller = JobController(store, clock, backoff)
    try:
        await run_controller(
            store,
            clock,
            name="job",
            first=[(namespace_of(job), name_of(job)) for job in store.list(JOB)],
            keys_of=controller.keys_of,
            sync=controller.sync,
        )
    finally:
        controller.close()
