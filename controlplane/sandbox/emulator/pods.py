"""One kubelet's part in a pod: start its containers, follow them, restart them, end them.

Source: k8s.io/kubernetes `pkg/kubelet` (pod workers, status manager), in short.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from controlplane.sandbox.clock import Clock, parse_rfc3339
from controlplane.sandbox.controllers.pods import condition_of, is_terminal, is_true, phase_of
from controlplane.sandbox.emulator import BOOT_SECONDS, RUN, Settings
from controlplane.sandbox.emulator.containers import (
    CannotStart,
    Container,
    Exit,
    PodRecord,
    Runtime,
    uid_of,
    write_status,
)
from controlplane.sandbox.emulator.emulated import EmulatedRuntime, seconds_of
from controlplane.sandbox.emulator.environment import ConfigMissing, environment
from controlplane.sandbox.emulator.nodes import is_ours, state_of
from controlplane.sandbox.emulator.processes import ProcessRuntime
from controlplane.sandbox.errors import BadRequest, Conflict
from controlplane.sandbox.kinds import NODE, POD
from controlplane.sandbox.objects import Object, clone, meta, name_of, namespace_of
from controlplane.sandbox.store import Store

Key = tuple[str, str]
_LOST = 255  # a process that went down with the sandbox
_EMULATED_SIGNALS = {"KILL": 137, "TERM": 143, "INT": 130}


class PodAgent:
    """All emulated kubelets' pods. `due(key)`: asks for another `sync` now."""

    def __init__(
        self, store: Store, clock: Clock, settings: Settings, due: Callable[[Key], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._due = due
        self._records: dict[str, PodRecord] = {}
        self._keys: dict[str, Key] = {}
        self._addresses = 0
        self.emulated = EmulatedRuntime(clock, settings)
        self.processes = ProcessRuntime(store, clock, settings.folder, self._process_ended)

    # -- events --------------------------------------------------------------------------------

    def gone(self, pod: Object) -> None:
        """The pod is no longer in the store: nothing of it may stay."""
        uid = uid_of(pod)
        self._records.pop(uid, None)
        self._keys.pop(uid, None)
        self.emulated.forget(uid)
        self.processes.forget(uid)

    def waiting_in(self, namespace: str) -> list[Key]:
        """Pods whose containers wait for a Secret or a ConfigMap of this namespace."""
        return [
            self._keys[uid]
            for uid, record in self._records.items()
            if self._keys[uid][0] == namespace
            and any(c.waiting == "CreateContainerConfigError" for c in record.containers)
        ]

    def send_signal(self, pod: Object, name: str) -> None:
        """Deliver a signal (`Hooks.send_signal`): Conflict when nothing runs."""
        uid, refused = uid_of(pod), "the pod has no running container"
        if is_local(pod):
            if not self.processes.signal(uid, signal.Signals[f"SIG{name}"]):
                raise Conflict.of(POD, name_of(pod), refused)
            return
        record = self._records.get(uid)
        if record is None or not record.running:
            raise Conflict.of(POD, name_of(pod), refused)
        if name not in _EMULATED_SIGNALS:
            known = ", ".join(_EMULATED_SIGNALS)
            raise BadRequest(f"signal: {name!r} means nothing to an emulated pod: use {known}")
        record.killed = name == "KILL"
        self.emulated.kill(uid, _EMULATED_SIGNALS[name])
        self._due(self._keys[uid])

    def _process_ended(self, uid: str) -> None:
        if uid in self._keys:
            self._due(self._keys[uid])

    # -- reconciling ---------------------------------------------------------------------------

    def sync(self, key: Key) -> float | None:
        """One step of one pod; when to look again, unless an event will say."""
        pod = self._store.find(POD, *key)
        node = pod and self._store.find(NODE, None, pod["spec"].get("nodeName") or "")
        if not pod or not node or not is_ours(node) or state_of(node) == "unreachable":
            return None
        deleting = bool(meta(pod).get("deletionTimestamp"))
        if is_terminal(pod):
            if deleting:
                self._finish(pod)
            return None
        record = self._record(pod, key)
        record.node_ready = is_true(node, "Ready")
        runtime: Runtime = self.processes if is_local(pod) else self.emulated
        if deleting:
            return self._stop(pod, record, runtime)
        return self._run(pod, record, runtime)

    def _run(self, pod: Object, record: PodRecord, runtime: Runtime) -> float | None:
        now = self._clock.now()
        self._collect_exits(pod, record, runtime)
        wake: list[float] = []
        for container, spec in zip(record.containers, pod["spec"]["containers"], strict=True):
            if container.ended is not None:
                self._restart_or_not(pod, container, record, now)
            if container.started_at is None:
                due = container.restart_at or record.boot_at or now
                if due <= now + 0.001:
                    self._start(pod, container, spec, runtime)
                else:
                    wake.append(due)
            if container.running:
                end = runtime.ends_at(record.uid, container.name)
                wake += [] if end is None else [end]
        self._write(pod, record, self._phase(pod, record))
        return min(wake, default=None)

    def _collect_exits(self, pod: Object, record: PodRecord, runtime: Runtime) -> None:
        for container in record.containers:
            if container.running:
                container.ended = runtime.exit_of(record.uid, container.name)

    def _restart_or_not(
        self, pod: Object, container: Container, record: PodRecord, now: float
    ) -> None:
        """A kubelet's rule: restart by policy, ever later, at most `restart_last` seconds."""
        policy = pod["spec"].get("restartPolicy", "Always")
        assert container.ended is not None
        again = policy == "Always" or (policy == "OnFailure" and container.ended.code != 0)
        if record.killed or not again:
            return
        settings = self._settings
        seconds = min(settings.restart_first * 2**container.restarts, settings.restart_last)
        ran = container.ended.at - (container.started_at or container.ended.at)
        if ran > 10 * settings.restart_last:  # it had recovered
            seconds = settings.restart_first
        container.restarts += 1
        container.wait_to_restart(now + seconds, seconds)

    def _start(self, pod: Object, container: Container, spec: Object, runtime: Runtime) -> None:
        try:
            if is_local(pod) and pod["spec"].get("initContainers"):
                why = "init containers aren't run as local processes: do their work in `command`"
                raise CannotStart("CreateContainerError", why)
            try:
                environment(self._store, pod, spec)
            except ConfigMissing as error:
                raise CannotStart("CreateContainerConfigError", str(error)) from error
            runtime.start(pod, spec, container.restarts)
        except CannotStart as error:
            container.waiting, container.message = error.reason, error.message
            return
        container.begin(self._clock.now())

    @staticmethod
    def _phase(pod: Object, record: PodRecord) -> str:
        """Source: kubelet `getPhase`."""
        ended = [c.ended for c in record.containers]
        if all(ended):
            failed = any(exit is not None and exit.code != 0 for exit in ended)
            return "Failed" if failed else "Succeeded"
        started = any(c.started_at is not None or c.last is not None for c in record.containers)
        return "Running" if started else "Pending"

    def _stop(self, pod: Object, record: PodRecord, runtime: Runtime) -> float | None:
        """SIGTERM, wait for the end within the grace, then report it and let the pod go."""
        now = self._clock.now()
        if not record.stopping:
            record.stopping = True
            began = parse_rfc3339(meta(pod)["deletionTimestamp"])
            grace = float(meta(pod).get("deletionGracePeriodSeconds") or 0)
            left = min(grace, max(began - now, 0.0) + 1.0)  # deletionTimestamp has whole seconds
            for container in record.containers:
                if container.running:
                    runtime.terminate(record.uid, container.name, left)
        self._collect_exits(pod, record, runtime)
        if record.running:
            ends = [runtime.ends_at(record.uid, c.name) for c in record.containers if c.running]
            return min((end for end in ends if end is not None), default=None)
        for container in record.containers:
            if container.started_at is None:
                container.waiting, container.restart_at = "ContainerCreating", None
        self._write(pod, record, "Succeeded" if self._all_fine(record) else "Failed")
        self._finish(self._store.find(POD, namespace_of(pod), name_of(pod)) or pod)
        return None

    @staticmethod
    def _all_fine(record: PodRecord) -> bool:
        return all(c.ended is not None and c.ended.code == 0 for c in record.containers)

    def _finish(self, pod: Object) -> None:
        """The last word of a kubelet on a deleted pod: grace 0."""
        if meta(pod).get("deletionGracePeriodSeconds") != 0:
            self._store.delete(POD, namespace_of(pod), name_of(pod), grace_seconds=0)

    def _write(self, pod: Object, record: PodRecord, phase: str) -> None:
        new = clone(pod)
        write_status(new.setdefault("status", {}), pod, record, phase, self._clock.now())
        self._store.update(POD, new, subresource="status")

    # -- records -------------------------------------------------------------------------------

    def _record(self, pod: Object, key: Key) -> PodRecord:
        uid = uid_of(pod)
        record = self._records.get(uid)
        if record is None:
            record = self._records[uid] = self._restore(pod)
            self._keys[uid] = key
        return record

    def _restore(self, pod: Object) -> PodRecord:
        """From the pod's status: empty for a new pod, else what an earlier kubelet wrote."""
        status = pod.get("status") or {}
        known = {entry["name"]: entry for entry in status.get("containerStatuses") or ()}
        containers = [
            Container.restore(spec, known.get(spec["name"])) for spec in pod["spec"]["containers"]
        ]
        record = PodRecord(uid_of(pod), status.get("podIP") or self._address(pod), containers)
        for container in containers:
            if container.running and is_local(pod):
                # its process went down with the sandbox; it is started again whatever the
                # restart policy, so that `make up` continues where it was
                lost = Exit(_LOST, self._clock.now())
                container.last, container.started_at = (container.started_at, lost), None
                container.restarts += 1
                container.waiting = "ContainerCreating"
            elif container.running:
                assert container.started_at is not None
                self.emulated.adopt(pod, container.name, container.started_at)
        record.boot_at = self._boot_at(pod)
        return record

    def _boot_at(self, pod: Object) -> float:
        now = self._clock.now()
        if is_local(pod):
            return now
        try:
            seconds = seconds_of(pod, BOOT_SECONDS, self._settings.boot)
        except CannotStart:
            seconds = self._settings.boot
        scheduled = condition_of(pod, "PodScheduled") or {}
        bound = scheduled.get("lastTransitionTime") if phase_of(pod) == "Pending" else None
        # a pod that an earlier kubelet was booting has waited already
        waited = now - parse_rfc3339(bound) if bound and (pod["status"].get("startTime")) else 0.0
        return now + max((seconds or 0.0) - waited, 0.0)

    def _address(self, pod: Object) -> str:
        if is_local(pod):
            return "127.0.0.1"
        self._addresses += 1
        number = self._addresses % (250 * 250)
        return f"10.244.{number // 250}.{number % 250 + 1}"


def is_local(pod: Object) -> bool:
    """Whether its containers are processes on this machine."""
    return (meta(pod).get("annotations") or {}).get(RUN) == "local"
