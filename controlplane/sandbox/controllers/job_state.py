"""One job with its pods: what is counted, what is wanted, and whether it is decided.

Source: k8s.io/kubernetes `pkg/controller/job/{job_controller,indexed_job_utils,
pod_failure_policy}.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.sandbox.clock import parse_rfc3339
from controlplane.sandbox.controllers.indexes import index_of, parse
from controlplane.sandbox.controllers.pods import (
    condition_of,
    is_active,
    is_deleting,
    is_terminating,
    phase_of,
    restarts_of,
)
from controlplane.sandbox.objects import Object, meta


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a job ends: the condition that will be final, and why."""

    final: str  # Complete | Failed
    reason: str
    message: str

    @property
    def interim(self) -> str:
        """The condition until the last pod has ended."""
        return "SuccessCriteriaMet" if self.final == "Complete" else "FailureTarget"


@dataclass(slots=True)
class JobState:
    """A job and its pods, sorted; `count` moves ended pods into the totals."""

    job: Object
    pods: list[Object]
    tracking: str
    active: list[Object] = field(default_factory=list)
    leaving: list[Object] = field(default_factory=list)
    succeeded: int = 0
    failed: int = 0
    succeeded_indexes: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    fatal: str = ""  # what a podFailurePolicy rule with FailJob said

    @classmethod
    def of(cls, job: Object, pods: list[Object], tracking: str) -> JobState:
        status = job.get("status") or {}
        state = cls(job=job, pods=pods, tracking=tracking)
        state.active = [pod for pod in pods if is_active(pod)]
        state.leaving = [pod for pod in pods if is_terminating(pod)]
        state.succeeded = status.get("succeeded", 0)
        state.failed = status.get("failed", 0)
        # what was noted, let go and then not counted, because the sandbox was killed in between
        tracked = {meta(p)["uid"] for p in pods if tracking in (meta(p).get("finalizers") or ())}
        noted = status.get("uncountedTerminatedPods") or {}
        state.failed += len(set(noted.get("failed") or ()) - tracked)
        if not state.indexed:
            state.succeeded += len(set(noted.get("succeeded") or ()) - tracked)
        else:
            # what an elastic resize cut off no longer counts, as KEP-3715 has it
            state.succeeded_indexes = parse(status.get("completedIndexes"), state.completions or 0)
            state.failed_indexes = parse(status.get("failedIndexes"), state.completions or 0)
            state.succeeded = len(state.succeeded_indexes)
        return state

    @property
    def uid(self) -> str:
        return str(meta(self.job)["uid"])

    @property
    def indexed(self) -> bool:
        return bool(self.job["spec"].get("completionMode") == "Indexed")

    @property
    def completions(self) -> int | None:
        value = self.job["spec"].get("completions")
        return None if value is None else int(value)

    @property
    def parallelism(self) -> int:
        return int(self.job["spec"].get("parallelism", 1))

    @property
    def suspended(self) -> bool:
        return bool(self.job["spec"].get("suspend"))

    @property
    def only_failed(self) -> bool:
        """Whether pods on their way out are replaced only once they have ended."""
        return bool(self.job["spec"].get("podReplacementPolicy") == "Failed")

    @property
    def terminating(self) -> int:
        return len(self.leaving)

    def wanted(self) -> int:
        """How many pods should be active."""
        if self.completions is None:
            return len(self.active) if self.succeeded else self.parallelism
        left = self.completions - self.succeeded - len(self.failed_indexes)
        return max(min(left, self.parallelism), 0)

    # -- counting ------------------------------------------------------------------------------

    def newly_ended(self) -> list[Object]:
        """Tracked pods that have ended, or are being deleted by somebody else."""
        tracked = [p for p in self.pods if self.tracking in (meta(p).get("finalizers") or ())]
        return [pod for pod in tracked if self.is_success(pod) or self.is_failure(pod)]

    def is_success(self, pod: Object) -> bool:
        return phase_of(pod) == "Succeeded"

    def is_failure(self, pod: Object) -> bool:
        """Failed; or deleted, unless the job waits for its pods to end."""
        if phase_of(pod) == "Failed":
            return True
        return is_deleting(pod) and not self.only_failed and not self.is_success(pod)

    def counts_as_failure(self, pod: Object) -> bool:
        """Failures of indexes that a resize cut off, or that a rule ignores, don't count."""
        if not self.is_failure(pod) or not self.in_range(pod):
            return False
        return matching_action(self.job, pod)[0] != "Ignore"

    def in_range(self, pod: Object) -> bool:
        index = index_of(pod)
        return not self.indexed or (index is not None and index < (self.completions or 0))

    def count(self, ended: list[Object]) -> None:
        """Add ended pods to the totals."""
        for pod in ended:
            if self.is_success(pod):
                self._count_success(pod)
            elif self.counts_as_failure(pod):
                self.failed += 1
                action, message = matching_action(self.job, pod)
                if action == "FailJob":
                    self.fatal = message
                elif self.indexed and (action == "FailIndex" or self._index_spent(pod)):
                    self.failed_indexes.add(index_of(pod) or 0)
        gone = {meta(pod)["uid"] for pod in ended}
        self.active = [pod for pod in self.active if meta(pod)["uid"] not in gone]

    def _count_success(self, pod: Object) -> None:
        if not self.indexed:
            self.succeeded += 1
        elif self.in_range(pod):
            self.succeeded_indexes.add(index_of(pod) or 0)
            self.succeeded = len(self.succeeded_indexes)

    def _index_spent(self, pod: Object) -> bool:
        """Whether this failure is one more than backoffLimitPerIndex allows."""
        limit = self.job["spec"].get("backoffLimitPerIndex")
        if limit is None:
            return False
        index = index_of(pod)
        failures = [p for p in self.pods if index_of(p) == index and self.counts_as_failure(p)]
        return len(failures) > limit


def judge(state: JobState, now: float) -> Verdict | None:
    """Whether the job is decided: earlier verdict, failure policy, limit, deadline, success."""
    spec, status = state.job["spec"], state.job.get("status") or {}
    for interim, final in (("FailureTarget", "Failed"), ("SuccessCriteriaMet", "Complete")):
        found = condition_of(state.job, interim)
        if found is not None and found["status"] == "True":
            return Verdict(final, found.get("reason", ""), found.get("message", ""))
    if state.fatal:
        return Verdict("Failed", "PodFailurePolicy", state.fatal)
    if state.failed > spec["backoffLimit"] or _restarts_spent(state):
        return Verdict(
            "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        )
    if failed := _failed_indexes(state):
        return failed
    deadline = spec.get("activeDeadlineSeconds")
    started = status.get("startTime")
    running = deadline is not None and started and not state.suspended
    if running and now >= parse_rfc3339(started) + deadline:
        why = "Job was active longer than specified deadline"
        return Verdict("Failed", "DeadlineExceeded", why)
    return _success(state)


def _success(state: JobState) -> Verdict | None:
    done = Verdict("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
    if state.completions is None:
        return done if state.succeeded and not state.active else None
    return done if state.succeeded >= state.completions and not state.suspended else None


def _failed_indexes(state: JobState) -> Verdict | None:
    if not state.failed_indexes:
        return None
    most = state.job["spec"].get("maxFailedIndexes")
    if most is not None and len(state.failed_indexes) > most:
        why = "Job has exceeded the specified maximal number of failed indexes"
        return Verdict("Failed", "MaxFailedIndexesExceeded", why)
    if state.succeeded + len(state.failed_indexes) >= (state.completions or 0):
        return Verdict("Failed", "FailedIndexes", "Job has failed indexes")
    return None


def _restarts_spent(state: JobState) -> bool:
    """With restartPolicy OnFailure the containers' restarts count against the limit."""
    spec = state.job["spec"]
    if spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    limit = spec["backoffLimit"]
    restarts = sum(map(restarts_of, state.active))
    return restarts > 0 if limit == 0 else restarts >= limit


def matching_action(job: Object, pod: Object) -> tuple[str, str]:
    """The action of the first podFailurePolicy rule that matches, and its message."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        if (codes := rule.get("onExitCodes")) and (hit := _exit_code(codes, pod)):
            return rule["action"], f"{hit} matching {rule['action']} rule at index {number}"
        for pattern in rule.get("onPodConditions") or ():
            found = condition_of(pod, pattern["type"])
            if found is not None and found["status"] == pattern.get("status", "True"):
                pair = f"{meta(pod)['namespace']}/{meta(pod)['name']}"
                return rule["action"], (
                    f"Pod {pair} has condition {pattern['type']} matching {rule['action']} "
                    f"rule at index {number}"
                )
    return "Count", ""


def _exit_code(codes: Object, pod: Object) -> str:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended is None or ended.get("exitCode", 0) == 0:
            continue
        if codes.get("containerName") not in (None, container["name"]):
            continue
        if (ended["exitCode"] in codes["values"]) == (codes["operator"] == "In"):
            pair = f"{meta(pod)['namespace']}/{meta(pod)['name']}"
            return (
                f"Container {container['name']} for pod {pair} failed with exit code "
                f"{ended['exitCode']}"
            )
    return ""
